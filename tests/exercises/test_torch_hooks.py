"""Lecture 52: the bytes of its task are those that torch's PowerSGD counts."""

from labkit.exercises import tasks
from labkit.exercises.judges.answers import solved
from tests.cluster.test_frameworks import TIMEOUT, cluster
from tests.exercises.cells import NEEDS_TORCH

pytestmark = NEEDS_TORCH

SHAPES = [(40, 30), (30,), (8, 4, 3, 3), (6, 5), (50, 20)]


def test_the_bytes_of_the_task_are_those_of_torchs_powersgd():
    def torchs(_, shapes, ranks_of_matrices):
        import datetime as dt

        import torch
        import torch.distributed as dist
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
        from torch.nn.parallel import DistributedDataParallel

        class Given(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weights = torch.nn.ParameterList(torch.ones(shape) for shape in shapes)

            def forward(self, x):
                return x * sum(one.square().sum() for one in self.weights)

        dist.init_process_group("gloo", timeout=dt.timedelta(seconds=60))
        found = []
        for rank in ranks_of_matrices:
            state = power.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
            replica = DistributedDataParallel(Given())
            replica.register_comm_hook(state, power.powerSGD_hook)
            for _ in range(3):  # the first two are not compressed
                replica(torch.ones(1)).sum().backward()
            found.append(
                (state.total_numel_before_compression, state.total_numel_after_compression)
            )
            del replica
        dist.destroy_process_group()
        return found

    with cluster("torch", 1) as c:
        found = c.run(torchs, SHAPES, (1, 2, 4), timeout=TIMEOUT, show=False)[0]
    for rank, (before, after) in zip((1, 2, 4), found, strict=True):
        mine = solved(tasks()["52.low_rank_bytes"].solution)(SHAPES, rank)
        assert mine == (4 * before, 2 * before, 4 * after)
