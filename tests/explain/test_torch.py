"""What is seen of PyTorch programs: steps, causes, faults; and that a removal does what it says."""

import os
import subprocess

import pytest

from labkit import environments
from labkit.explain import findings, runs
from labkit.explain.candidates import CORES, candidates
from labkit.explain.removals import gain
from labkit.explain.seen import seen
from labkit.explain.statements import Statement, ask

TORCH = environments.find("torch")
REQUIRED = os.environ.get("LABKIT_REQUIRE_ENVIRONMENTS") == "1"
pytestmark = pytest.mark.skipif(
    not REQUIRED and not TORCH.stamp, reason="not built: labkit env build torch"
)

ALONE = """
import torch
torch.set_num_threads(1)
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)

class Slow(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, i):
        total = 0
        for one in range(400_000):
            total += one
        return torch.full((4,), float(i)), i % 2

def judge():
    model.eval()
    with torch.no_grad():
        for _ in range(4000):
            model(torch.ones(8, 4))
    model.train()

def train():
    step = 0
    for epoch in range(3):
        for x, y in DataLoader(Slow(), batch_size=4):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 3 == 0:
                judge()
                torch.save(model.state_dict(), f"model{step}.pt")
train()
"""

RANKS = """
import torch, sys
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(0)
rank, fault = dist.get_rank(), sys.argv[1]
images = torch.zeros(32, 784)  # dark at the rim, as MNIST is
images[:, 300:302] = torch.arange(64.0).reshape(32, 2)
data = TensorDataset(images, torch.arange(32) % 2)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=None if fault == "same_data" else sampler)
model = nn.Linear(784, 2)
trained = DDP(model, find_unused_parameters=True)
optimizer = torch.optim.SGD(trained.parameters(), 1e-4)
for epoch in range(4):
    if fault != "no_set_epoch":
        sampler.set_epoch(epoch)
    for i, (x, y) in enumerate(loader):
        out = model(x) if fault == "weights_differ" else trained(x)
        loss = nn.functional.cross_entropy(out, y)
        (loss if fault == "loss_scale" else loss / 2).backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
dist.destroy_process_group()
"""

IDLE = """
import torch
from torch import nn
torch.manual_seed(0)
table = nn.Embedding(40_000, 32)
body, head = nn.Linear(32, 8), nn.Linear(8, 2)
body.requires_grad = False
model = nn.Sequential(table, body, head)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], 0.1)
for step in range(1, 9):
    x, y = torch.arange(step, step + 4), torch.tensor([0, 1, 0, 1])
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    torch.save([head.weight.detach(), table.weight[:9].detach()], f"weights{step}.pt")
"""
SAME = "import torch, sys\na, b = map(torch.load, sys.argv[1:])\nassert all(map(torch.equal, a, b))"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Runs of a program in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    opened = []

    def make(text, *arguments):
        (tmp_path / "train.py").write_text(text, "utf-8")
        found = runs.Runs([str(TORCH.python), *arguments])
        opened.append(found)
        return found

    yield make
    for one in opened:
        one.close()


def test_a_loop_is_seen_and_parts_of_it_are_left_out_in_turns(start, tmp_path):
    run = start(ALONE, "train.py")
    outcome = run.watched()
    assert outcome.code == 0
    watched = seen(outcome.reports, str(tmp_path))
    assert (watched.kind, watched.steps, watched.epoch) == ("optimizer", 18, 6)
    keys = {one.key: one for one in candidates(watched)}
    assert keys["python_loop_input"].line.startswith("train.py:1")  # in the loop of __getitem__
    assert {"few_workers", "evaluation"} <= keys.keys() or CORES == 1
    assert "python" not in keys  # no line of the step itself is left out
    files = sorted(path.name for path in tmp_path.glob("*.pt"))
    assert len(files) == 6
    phases = [[6, ["save"]], [6, []]]
    config = {"kind": "optimizer", "stop": 16, "warm": 3, "values": {}, "phases": phases}
    outcome = run.shorter(config, {}, {}, 300)
    assert not outcome.failed
    saved = sorted(path.name for path in run.moved(tmp_path).glob("*.pt"))
    assert saved == ["model12.pt", "model15.pt", "model9.pt"]  # 3 and 6 were left out
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == files
    file = str(tmp_path / "train.py")
    (first,) = [n for n, one in enumerate(ALONE.splitlines(), 1) if "step % 3" in one]
    one = Statement(file, first, first + 2)
    edits = {tmp_path / "train.py": ask(ALONE, [("all", one)])}
    config |= {"phases": [], "always": ["all"]}
    assert not run.shorter(config, edits, {}, 300).failed
    saved = [path.name for path in run.moved(tmp_path).glob("*.pt")]
    assert saved == []


@pytest.mark.parametrize(
    "fault", ["none", "same_data", "weights_differ", "loss_scale", "no_set_epoch"]
)
def test_a_fault_of_two_ranks_is_named_and_no_other(start, tmp_path, fault):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = start(RANKS, *torchrun, "train.py", fault)
    for _ in range(3):  # a rank of gloo aborts at its very end now and then, without labkit too
        outcome = run.watched()
        if not outcome.code:
            break
    watched = seen(outcome.reports, str(tmp_path))
    assert watched.world == 2
    told = {one.key for one in findings.wrong(watched)}
    assert told == ({fault} - {"none"})
    if fault != "none":
        return
    keys = {one.key for one in candidates(watched)}
    assert {"communication", "micro_steps", "find_unused"} <= keys
    config = {"kind": "optimizer", "stop": 8, "warm": 3, "always": ["last", "used"],
              "values": {"micro": 2}, "phases": []}  # fmt: skip
    outcome = run.shorter(config, {}, {}, 300)
    assert not outcome.failed
    assert [len(one["marks"]["optimizer"]) for one in outcome.reports] == [8, 8]


def test_unused_gradients_are_seen_and_left_out(start, tmp_path):
    run = start(IDLE, "train.py")
    watched = seen(run.watched().reports, str(tmp_path))
    keys = {one.key: one for one in candidates(watched)}
    assert keys["frozen"].what == "264 of 1,280,282 weights"
    assert [keys[key].line for key in ("frozen", "rows")] == ["train.py:7", "train.py:5"]
    config = {"kind": "optimizer", "stop": 8, "warm": 3, "always": ["frozen", "rows"],
              "values": {}, "phases": [[4, ["frozen"]]]}  # fmt: skip
    assert not run.shorter(config, {}, {}, 300).failed
    for step in (2, 7):
        files = [place / f"weights{step}.pt" for place in (tmp_path, run.moved(tmp_path))]
        subprocess.run([TORCH.python, "-c", SAME, *files], check=True, timeout=300)


def test_a_gain_needs_three_pairs_and_holds_the_truth():
    assert gain([0.7, 0.7]) is None
    found = gain([0.68, 0.70, 0.69, 0.71])
    assert found.low < 2 < found.high
    assert found.high / found.low < 1.06
