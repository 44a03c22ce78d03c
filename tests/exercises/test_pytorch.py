"""Lecture 24: its oracles are torch's own, and typical mistakes are found on real ranks."""

import os
import re

import nbformat
import numpy as np
import pytest

import labkit
from labkit import environments
from labkit.cluster.output import Recording, hash_of
from labkit.exercises import tasks
from labkit.exercises.lectures import lecture_24_pytorch as pytorch
from tests.exercises.cells import NOTEBOOKS, value

TIMEOUT = 300  # on a machine that does much else
[LECTURE] = [path for path in NOTEBOOKS if path.name.startswith("24_")]
CELLS = {cell.id: cell.source for cell in nbformat.read(LECTURE, as_version=4).cells}
PROGRAMS: dict[str, str] = {}  # the files that the lecture writes
for source in CELLS.values():
    if written := re.match(r"%%writefile (-a )?(\S+)\n", source):
        PROGRAMS.setdefault(written[2], "")
        PROGRAMS[written[2]] += source[written.end() :] + "\n"
MEAN_WITHOUT_BROADCAST = """model
    for one in model.parameters():
        hook = lambda one: dist.all_reduce(one.grad.div_(ranks)) and None
        one.register_post_accumulate_grad_hook(hook)"""
needs_torch = pytest.mark.skipif(
    not environments.find("torch").stamp and os.environ.get("LABKIT_REQUIRE_ENVIRONMENTS") != "1",
    reason="labkit env build torch",
)


def on_torch(program, *args, ranks=1):
    with labkit.cluster(ranks=ranks, environment="torch", start=TIMEOUT) as c:
        return c.run(program, *args, timeout=TIMEOUT)[0]


@needs_torch
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
        assert pytorch.solved(pytorch.SAMPLER)(*given) == indices, (length, ranks, rank, drop_last)


@needs_torch
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
        assert buckets == pytorch.solved(pytorch.BUCKETS)(sizes, first << 20, cap << 20)
    assert [len(buckets) for _, buckets in found] == [2, 3, 2]


@pytest.mark.parametrize(
    ("task", "right", "wrong", "words"),
    [
        ("buckets", "reversed(parameters)", "parameters", "returned"),
        ("buckets", "(first if len(buckets) == 1 else cap)", "cap", "returned"),
        ("sampler", "seed + epoch", "seed", "epoch=1"),
        ("sampler", "order[rank::ranks]", "sorted(order)[rank::ranks]", "returned"),
        ("ddp", "cross_entropy(replica(", "cross_entropy(model(", "different weights"),
        ("ddp", "        optimizer.zero_grad()\n", "", "call zero_grad"),
        ("ddp", "DistributedDataParallel(model)", MEAN_WITHOUT_BROADCAST, "broadcast"),
        ("ddp", "lr=0.5", "lr=0.5 * ranks", "learning rate without the number of ranks"),
        ("ddp", "y[rank::ranks])", "y[rank::ranks], reduction='sum')", "sum over a rank's"),
        ("ddp", "ranks]), y", "ranks]).softmax(1), y", "without a softmax"),
        ("ddp", "[rank::ranks]", "", "share is 8"),
        ("fully_shard", "isinstance(layer, torch.nn.Linear)", "False", "each Linear"),
        ("fully_shard", "[rank::ranks]", "[:8]", "equal weights"),
        ("split", "h.backward(gradient)", "h.sum().backward()", "first layer"),
        ("split", "optimizer.step()", "pass", "differ"),
    ],
)
def test_a_typical_mistake_is_found(task, right, wrong, words):
    solution = tasks()[f"24.{task}"].solution.strip() + "\n"
    assert right in solution
    outcome = tasks()[f"24.{task}"].check(value(solution.replace(right, wrong)))
    if outcome.state == "elsewhere" and os.environ.get("LABKIT_REQUIRE_ENVIRONMENTS") != "1":
        pytest.skip("not built: labkit env build torch")
    assert outcome.state == "wrong"
    assert words in outcome.text


def test_indices_may_be_an_array_of_numpy():
    solution = pytorch.SAMPLER.strip() + "\n"
    array = solution.replace("order[rank::ranks]", "np.array(order)[rank::ranks]")
    assert tasks()["24.sampler"].check(value(array)).state == "right"


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_recorded_was_written_by_this_program(name, tmp_path, monkeypatch):
    (tmp_path / name).write_text(PROGRAMS[name], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    script = LECTURE.parent / name
    runs = Recording.of(script).runs
    if not runs:
        script = script.with_name("torchrun")
        runs = [run for run in Recording.of(script).runs if name in run.arguments]
    [run] = runs
    assert run.program == hash_of(tmp_path / script.name, run.arguments)


@needs_torch
def test_every_weight_of_ddp_is_that_of_keras(tmp_path, monkeypatch):
    printed = '    print(f"{name}:"'
    program = PROGRAMS["24_same.py"]
    assert printed in program
    kept = program.replace(printed, f'    np.save(f"{{name}}.npy", weights)\n{printed}')
    (tmp_path / "24_same.py").write_text(kept, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with labkit.cluster(ranks=2, environment="torch", start=TIMEOUT) as c:
        c.run_script("24_same.py", timeout=TIMEOUT, show=False)
    whole = "class Whole:\n    def __matmul__(self, weights):\n        return weights\n"
    cells = CELLS["pytorch-tf-data"], whole, "directions = Whole()", CELLS["pytorch-tf-train"]
    keras = value("\n".join(cells) + "\n")
    for name, ours, most in (("SGD", "SGD", 1e-6), ("Adam, eps as in Keras", "Adam", 1e-5)):
        assert abs(np.load(f"{name}.npy") - keras[ours]).max() < most, name
    assert abs(np.load("Adam, eps=1e-7.npy") - keras["Adam"]).max() > 1e-3
