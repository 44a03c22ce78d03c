"""Lecture 24: its oracles are torch's own, and typical mistakes are found on real ranks."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

from labkit.cluster.output import Recording, hash_of
from labkit.exercises import tasks
from labkit.exercises.judges.answers import solved
from tests.cluster.test_frameworks import TIMEOUT, cluster
from tests.exercises.cells import NOTEBOOKS, changed, refused, value

LECTURES = [path for path in NOTEBOOKS if path.name.startswith("24")]
CELLS = {
    cell.id: cell.source for path in LECTURES for cell in nbformat.read(path, as_version=4).cells
}
PROGRAMS: dict[str, str] = {}  # the files that the lectures write
for source in CELLS.values():
    if written := re.match(r"%%writefile (-a )?(\S+)\n", source):
        PROGRAMS.setdefault(written[2], "")
        PROGRAMS[written[2]] += source[written.end() :] + "\n"
MEAN_WITHOUT_BROADCAST = """model
    for one in model.parameters():
        hook = lambda one: dist.all_reduce(one.grad.div_(ranks)) and None
        one.register_post_accumulate_grad_hook(hook)"""


def on_torch(program, *args, ranks=1):
    with cluster("torch", ranks) as c:
        return c.run(program, *args, timeout=TIMEOUT)[0]


def test_the_judge_knows_the_indices_of_torchs_sampler():
    def torchs(_, samples):
        import torch
        from torch.utils.data import DistributedSampler

        found = []
        for length, ranks in samples:
            order = torch.randperm(length, generator=torch.Generator().manual_seed(9)).tolist()
            for drop_last in (False, True):
                for rank in range(ranks):
                    given = range(length), ranks, rank
                    sampler = DistributedSampler(*given, seed=7, drop_last=drop_last)
                    sampler.set_epoch(2)
                    found.append((length, ranks, rank, order, drop_last, list(sampler)))
        return found

    for length, ranks, rank, order, drop_last, indices in on_torch(
        torchs, [(12, 3), (10, 4), (2, 5), (103, 8), (1, 3)]
    ):
        orders = {(length, 9): order}
        given = length, ranks, rank, 7, 2, lambda *key, of=orders: of[key], drop_last
        assert solved(tasks()["24.sampler"].solution)(*given) == indices, (
            length,
            ranks,
            rank,
            drop_last,
        )


def test_the_judge_knows_the_buckets_of_torchs_ddp():
    def torchs(_, caps):
        import datetime as dt
        from itertools import pairwise

        import torch
        import torch.distributed as dist
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo", timeout=dt.timedelta(seconds=60))
        found, replicas = [], []
        for cap in caps:
            widths = pairwise([300, 700, 600, 400, 900, 10, 900])
            model = torch.nn.Sequential(*[torch.nn.Linear(*both) for both in widths])
            names = {parameter: name for name, parameter in model.named_parameters()}
            replicas.append(DistributedDataParallel(model, bucket_cap_mb=cap))
            buckets = []

            def hook(group, bucket, buckets=buckets, names=names):
                buckets.append([names[one] for one in bucket.parameters()])
                return allreduce_hook(group, bucket)

            replicas[-1].register_comm_hook(None, hook)
            for _ in range(2):  # from the second step on in the order of the first
                buckets.clear()
                replicas[-1](torch.ones(1, 300)).sum().backward()
            found.append(([(name, one.nbytes) for one, name in names.items()], buckets))
        return found

    found = on_torch(torchs, [None, 1, 2], ranks=2)
    for (sizes, buckets), first, cap in zip(found, (1, 1, 2), (25, 1, 2), strict=True):
        assert buckets == solved(tasks()["24.buckets"].solution)(sizes, first << 20, cap << 20)
    assert [len(buckets) for _, buckets in found] == [2, 3, 2]


@pytest.mark.parametrize(
    ("task", "right", "wrong", "words"),
    [
        ("ddp", "cross_entropy(replica(", "cross_entropy(model(", "different weights"),
        ("ddp", "        optimizer.zero_grad()\n", "", "call zero_grad"),
        ("ddp", "DistributedDataParallel(model)", MEAN_WITHOUT_BROADCAST, "broadcast"),
        ("ddp", "y[rank::ranks])", "y[rank::ranks], reduction='sum')", "take their mean"),
        ("ddp", "[rank::ranks]", "[::ranks]", "the same examples"),
        ("fully_shard", "isinstance(layer, torch.nn.Linear)", "False", "each Linear"),
        ("split", "h.backward(gradient)", "pass", "first layer is not trained"),
    ],
)
def test_a_typical_mistake_is_found(task, right, wrong, words):
    refused(f"24.{task}", changed(f"24.{task}", right, wrong), words)


@pytest.mark.parametrize("name", [*PROGRAMS, "programs/24_ddp.py"])
def test_what_is_recorded_was_written_by_this_program(name, tmp_path, monkeypatch):
    script = LECTURES[0].parent / name
    if name in PROGRAMS:
        (tmp_path / name).write_text(PROGRAMS[name], encoding="utf-8")
        monkeypatch.chdir(tmp_path)
    else:
        monkeypatch.chdir(LECTURES[0].parent)
    by_launcher = Recording.of(LECTURES[0].with_name("torchrun")).runs
    runs = [*Recording.of(script).runs, *(run for run in by_launcher if name in run.arguments)]
    assert runs
    for run in runs:
        file = Path("torchrun") if name in run.arguments else Path(name)
        assert run.program == hash_of(file, run.arguments)


def test_ddp_does_the_same_training_with_any_number_of_ranks():
    """The global batch is kept: the sums of the weights agree to rounding."""
    found = []
    for ranks in (1, 2, 4):
        with cluster("torch", ranks) as c:
            program = LECTURES[0].parent / "programs" / "24_ddp.py"
            output = c.run_script(program, "--epochs", 1, timeout=TIMEOUT, show=False)[0]
        found.append(float(output.split()[-1]))
    assert found == pytest.approx([found[0]] * 3, rel=1e-5)


def test_every_weight_of_ddp_is_that_of_keras(tmp_path, monkeypatch):
    printed = '    print(f"{name}:"'
    program = PROGRAMS["24_same.py"]
    assert printed in program
    kept = program.replace(printed, f'    np.save(f"{{name}}.npy", weights)\n{printed}')
    (tmp_path / "24_same.py").write_text(kept, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with cluster("torch", 2) as c:
        c.run_script("24_same.py", timeout=TIMEOUT, show=False)
    whole = "class Whole:\n    def __matmul__(self, weights):\n        return weights\n"
    cells = CELLS["pytorch-tf-data"], whole, "directions = Whole()", CELLS["pytorch-tf-train"]
    keras = value("\n".join(cells) + "\n")
    for name, ours, most in (("SGD", "SGD", 1e-6), ("Adam, eps as in Keras", "Adam", 1e-5)):
        assert abs(np.load(f"{name}.npy") - keras[ours]).max() < most, name
    assert abs(np.load("Adam, eps=1e-7.npy") - keras["Adam"]).max() > 1e-3
