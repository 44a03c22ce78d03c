"""Lecture 51: the oracles of its tasks are torch's own."""

from labkit.exercises import tasks
from labkit.exercises.judges.answers import solved
from tests.cluster.test_frameworks import TIMEOUT, cluster


def test_the_scales_of_the_task_are_those_of_torchs_scaler():
    def torchs(_, found_inf, scale, interval):
        import torch

        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)
        found = []
        for bad in found_inf:
            optimizer.zero_grad()
            scaler.scale((weight * (float("inf") if bad else 1.0)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append(scaler.get_scale())
        return found

    for case in (
        ([False, True, False, False, False, False], 8.0, 2),
        ([n % 5 == 0 for n in range(20)], 2.0**16, 4),
        ([False] * 7, 4.0, 3),
    ):
        with cluster("torch", 1) as c:
            wanted = c.run(torchs, *case, timeout=TIMEOUT, show=False)[0]
        assert solved(tasks()["51.scale"].solution)(*case) == wanted
