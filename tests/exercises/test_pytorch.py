"""Part 5: its oracles are torch's own, and recordings are of the programs that are there."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

from labkit.cluster.ranks.recorded import RecordedRuns, hash_of
from labkit.exercises import tasks
from labkit.exercises.judges.answers import solved
from tests.cluster.test_frameworks import TIMEOUT, cluster
from tests.exercises.cells import NOTEBOOKS

LECTURES = [path for path in NOTEBOOKS if path.name.startswith("5")]
CELLS = {
    cell.id: cell.source for path in LECTURES for cell in nbformat.read(path, as_version=4).cells
}
RECORDINGS = LECTURES[0].parent / "programs" / "recordings"
TO_TAKE_HOME = sorted(LECTURES[0].parent.glob("programs/5*.py"))
PROGRAMS: dict[str, str] = {}  # the files that the lectures write
for source in CELLS.values():
    if written := re.match(r"%%writefile (-a )?(\S+)\n", source):
        PROGRAMS.setdefault(written[2], "")
        PROGRAMS[written[2]] += source[written.end() :] + "\n"


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
        assert solved(tasks()["51.sampler"].solution)(*given) == indices, (
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
        assert buckets == solved(tasks()["50.buckets"].solution)(sizes, first << 20, cap << 20)
    assert [len(buckets) for _, buckets in found] == [2, 3, 2]


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in PROGRAMS if "keras" not in name),
        *(f"programs/{file.stem}.py" for file in RECORDINGS.glob("*.json")),
    ],
)
def test_what_is_recorded_was_written_by_this_program(name, tmp_path, monkeypatch):
    script = LECTURES[0].parent / name
    if name in PROGRAMS:
        (tmp_path / "written").mkdir()
        (tmp_path / name).write_text(PROGRAMS[name], encoding="utf-8")
        monkeypatch.chdir(tmp_path)
    else:
        monkeypatch.chdir(LECTURES[0].parent)
    by_launcher = RecordedRuns.of(LECTURES[0].with_name("torchrun")).runs
    runs = [*RecordedRuns.of(script).runs, *(run for run in by_launcher if name in run.arguments)]
    assert runs
    for run in runs:
        file = Path("torchrun") if name in run.arguments else Path(name)
        assert run.program == hash_of(file, run.arguments)


def test_ddp_does_the_same_training_with_any_number_of_ranks():
    """The global batch is kept: the sums of the weights agree to rounding."""
    found = []
    for ranks in (1, 2, 4):
        with cluster("torch", ranks) as c:
            program = LECTURES[0].parent / "programs" / "51_ddp.py"
            output = c.run_script(program, "--epochs", 1, timeout=TIMEOUT, show=False)[0]
        found.append(float(output.split()[-1]))
    assert found == pytest.approx([found[0]] * 3, rel=1e-5)


def test_every_weight_of_ddp_is_that_of_keras(tmp_path, monkeypatch):
    printed = '    print(f"{name}:"'
    for file in ("50_same.py", "50_keras.py"):
        program = PROGRAMS[f"written/{file}"]
        assert printed in program
        save = f'    np.save(f"{file} {{name}}.npy", weights)\n'
        (tmp_path / file).write_text(program.replace(printed, save + printed), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with cluster("torch", 2) as c:
        c.run_script("50_same.py", timeout=TIMEOUT, show=False)
    exec((tmp_path / "50_keras.py").read_text(encoding="utf-8"), its := {})
    start = np.concatenate([one.ravel() for one in its["start"]])
    torch, keras = (
        lambda name, of=of: np.load(f"50_{of}.py {name}.npy") for of in ("same", "keras")
    )
    for name, ours, most in (("SGD", "SGD", 1e-6), ("Adam, eps as in Keras", "Adam", 1e-5)):
        assert abs(torch(name) - keras(ours)).max() < most, name
        assert abs(keras(ours) - start).max() > 1000 * most, "it has not trained"
    assert abs(torch("Adam, eps=1e-7") - keras("Adam")).max() > 1e-3
