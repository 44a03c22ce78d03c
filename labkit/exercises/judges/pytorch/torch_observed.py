"""What ranks of PyTorch do with a student's function, as plain data: the judge has the truths.

A case says how many ranks there are, the weights of the start, the examples of each rank and step,
and which program below calls the function. Imported in a rank alone.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import TensorDataset

from labkit import shipping
from labkit.exercises.blanks import raised
from labkit.exercises.judges.pytorch.torch_ranks import RankWatch, ThreadWorld, run

Case = dict[str, Any]
Seen = dict[str, Any]


def observed(mine: Callable[..., Any] | None, cases: list[Case]) -> list[Seen]:
    """What each rank did in each case, up to the first that failed."""
    found: list[Seen] = []
    folder = TemporaryDirectory()  # of all cases: an interrupted training goes on in it
    for one in cases:
        case = {**one, "folder": folder}
        own: Any = [None] * case["ranks"]
        if mine:
            own = shipping.copies(partial(mine), case["ranks"])  # ranks share no variable
        seen: list[Seen] = [{} for _ in own]
        program = partial(in_rank, own=own, case=case, seen=seen)
        with patch.object(torch, "save", partial(saved, torch.save, case, seen)):
            world = run(program, case["ranks"])
        for watch, its in zip(world.watches, seen, strict=True):
            its |= {"events": [*map(asdict, watch.events)], "marks": watch.marks}
        faults = {rank: [f"{fault}", raised(fault, mine)] for rank, fault in world.faults.items()}
        if killed := any(its.get("killed") for its in seen):
            world.why, faults = "", {}  # those of the others, too: their peer is gone
        found.append({"why": world.why, "faults": faults, "ranks": seen, "killed": killed})
        if world.why:
            break
    return found


def in_rank(world: ThreadWorld, rank: int, own: Any, case: Case, seen: list[Seen]) -> None:
    """Call the case's program as this rank."""
    PROGRAMS[case["program"]](world.watches[rank], rank, own[rank], case, seen[rank])


class TrainingSteps:
    """A model's weights, and its examples: a step begins where a forward pass has new weights."""

    def __init__(self, seen: Seen, model: Any) -> None:
        self.seen, self.model, self.held = seen, model, 0
        self.steps, self.examples = seen.setdefault("steps", []), seen.setdefault("examples", [])
        self.trained = {n for n, one in model.named_parameters() if one.requires_grad}

    def now(self) -> dict[str, Any]:
        """The weights that are trained, tied ones once; of a sharded one, this rank's part."""
        return {
            n: array(getattr(one, "_local_tensor", one))
            for n, one in self.model.named_parameters()
            if n in self.trained
        }

    def frozen(self) -> dict[str, Any]:
        """The weights that are not trained."""
        return {n: array(one) for n, one in self.model.named_parameters() if n not in self.trained}

    def forward(self, _: Any, given: Any) -> None:
        """A forward pass begins."""
        if torch.is_grad_enabled():
            now = self.now()
            self.seen.setdefault("buffers", [*map(float, self.model.buffers())])
            if not self.steps or any(not (now[n] == self.steps[-1][n]).all() for n in now):
                self.steps.append(now)
                self.examples.append([])
            self.examples[-1].append(array(given[0]))

    def result(self, _: Any, __: Any, logits: Any) -> None:
        """A forward pass ends; what it has saved is held until its backward pass."""
        if logits.requires_grad:
            self.held += 1
            self.seen["most_held"] = max(self.held, self.seen.get("most_held", 0))
            logits.register_hook(self.backward)

    def backward(self, _: Any) -> None:
        """A backward pass begins."""
        self.held -= 1


class RankBatches:
    """A rank's images and labels, and the number of all examples, of each step where it has some.

    The next batch ends a step, and what the rank then holds is noted.
    """

    def __init__(self, watch: RankWatch, case: Case, rank: int) -> None:
        self.watch = watch
        self.batches = [
            (*map(torch.tensor, step[rank]), sum(len(y) for _, y in step))
            for step in case["batches"]
            if len(step[rank][1])
        ]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for one in self.batches:
            yield one
            self.watch.mark()


class KilledRank(BaseException):
    """Ends a rank, as a signal would: no `except Exception` stops it."""


def saved(
    save: Any, case: Case, seen: list[Seen], what: Any, file: Any, *args: Any, **kw: Any
) -> None:
    """torch.save, which notes who writes a file; at `torn` it is killed when half is written."""
    path = file if isinstance(file, str | Path) else getattr(file, "name", None)
    if not isinstance(path, str | Path):
        save(what, file, *args, **kw)
        return
    its, whole = seen[dist.get_rank()], io.BytesIO()
    its.setdefault("saves", []).append(f"{path}")
    save(what, whole, *args, **kw)
    torn = its.get("said", [])[-1:] == [case.get("torn")]
    with Path(path).open("wb") if file is path else nullcontext(file) as out:
        out.write(whole.getvalue()[: whole.tell() // (2 if torn else 1)])
        out.flush()
    if torn:
        its["killed"] = True
        raise KilledRank


def array(tensor: Any) -> Any:
    """A copy: the storage of a tensor that NumPy has seen cannot be freed, as FSDP does."""
    with _disable_current_modes():
        return tensor.detach().clone().numpy()


def plain(value: Any) -> Any:
    """Numbers and arrays of what a function returned."""
    if isinstance(value, torch.Tensor):
        return array(value) if value.ndim else value.item()
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [*map(plain, value)]
    return f"{value}" if isinstance(value, nn.Module) else value  # the lab has no torch


class TiedNetwork(nn.Module):  # type: ignore[misc]
    """A network with a buffer, a frozen layer, and a weight that two layers share.

    An expert is a bias of the logits of those examples that begin with more than 1.
    """

    def __init__(self, *, expert: bool) -> None:
        super().__init__()
        self.first, self.frozen, self.middle, self.last = (
            nn.Linear(8, 8, bias=number == 2) for number in range(4)
        )
        self.last.weight = self.first.weight
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.tensor(0.0))
        self.expert = nn.Parameter(torch.zeros(8)) if expert else None

    def forward(self, x: Any) -> Any:
        """The logits."""
        hidden = self.frozen(torch.relu(self.first(x * self.scale)))
        logits, chosen = self.last(torch.relu(self.middle(torch.relu(hidden)))), x[:, :1] > 1
        return logits + chosen * self.expert if self.expert is not None and chosen.any() else logits


def layers(case: Case) -> Any:
    """A network as its weights are: Linear layers, with a ReLU between them."""
    names = [name for name in case["weights"] if name.endswith("weight")]
    made: list[Any] = []
    for name in names:
        out, given = case["weights"][name].shape
        made += [nn.Linear(given, out, bias=f"{name[:-6]}bias" in case["weights"]), nn.ReLU()]
    return nn.Sequential(*made[:-1])


def made(case: Case, rank: int, model: Any) -> Any:
    """The model with the weights of rank 0, or where they must be broadcast, with others."""
    state = {name: torch.tensor(one) for name, one in case["weights"].items()}
    if case.get("apart"):
        state = {name: one + rank for name, one in state.items()}
    with torch.no_grad():
        for name, one in [*model.named_parameters(), *model.named_buffers()]:
            one.copy_(state[name])
    return model


# Programs: each calls the function as a task says, and notes in `seen` what it did.


def train(watch: RankWatch, rank: int, mine: Any, case: Case, seen: Seen) -> None:
    """mine(model, ...) trains: with batches, with all images and labels, or with a dataset."""
    model = made(
        case,
        rank,
        TiedNetwork(expert="expert" in case["weights"]) if case.get("tied") else layers(case),
    )
    steps, optimizers = TrainingSteps(seen, model), list[Any]()
    model.register_forward_pre_hook(steps.forward)
    model.register_forward_hook(steps.result)

    def make_optimizer(parameters: Any) -> Any:
        kind = getattr(torch.optim, case["optimizer"])
        optimizers.append(kind(parameters, **case["settings"]))
        return optimizers[-1]

    given: list[Any] = []
    if case.get("shards"):
        given.append(init_device_mesh("cpu", (case["ranks"],)))
    if "arrays" in case:
        given += [torch.tensor(one) for one in case["arrays"]]
    elif "dataset" in case:
        given.append(TensorDataset(*(torch.tensor(one) for one in case["dataset"])))
    else:
        given.append(RankBatches(watch, case, rank))
    given += case.get("more", ())
    given += [make_optimizer] if "optimizer" in case else []
    seen["returned"] = plain(mine(model, *given))
    states = [one for its in optimizers for state in its.state.values() for one in state.values()]
    seen["state"] = sum(one.nbytes for one in states if isinstance(one, torch.Tensor) and one.ndim)
    linear = [one for one in model.modules() if isinstance(one, nn.Linear)]
    units = [model, *linear] if case.get("shards") else []
    seen["units"] = all(isinstance(one, FSDPModule) for one in units)
    seen["end"], seen["frozen"] = steps.now(), steps.frozen()


def resume(watch: RankWatch, rank: int, mine: Any, case: Case, seen: Seen) -> None:
    """mine(model, ..., folder, after_step) trains, and is killed after the case's step `stop`."""
    model, folder = made(case, rank, layers(case)), Path(case["folder"].name)
    steps, said = TrainingSteps(seen, model), seen.setdefault("said", [])
    model.register_forward_pre_hook(steps.forward)

    def units(*_: Any) -> None:
        linear = [one for one in model if isinstance(one, nn.Linear)]
        seen["units"] = all(isinstance(one, FSDPModule) for one in [model, *linear])

    def after_step(done: int) -> None:
        said.append(done)
        if done == case["stop"]:
            seen["end"] = steps.now()
            dist.barrier()
            if case.get("shards"):  # the next checkpoint was begun, and has no .metadata
                (folder / f"{done + 1:03}").mkdir(exist_ok=True)
            seen["killed"] = True
            raise KilledRank

    if case.get("shards"):
        model.register_forward_pre_hook(units)
        given = [init_device_mesh("cpu", (case["ranks"],)), *map(torch.tensor, case["arrays"])]
    else:
        given = [TensorDataset(*map(torch.tensor, case["dataset"]))]
    seen["returned"] = plain(mine(model, *given, folder, after_step, *case.get("more", ())))
    seen["end"], seen["files"] = steps.now(), [one.name for one in folder.rglob("*")]


def split(watch: RankWatch, rank: int, mine: Any, case: Case, seen: Seen) -> None:
    """mine(rank, part, optimizer, x, y) makes one step of the half of the model that is here."""
    model = made(case, rank, layers(case))
    part = model[:2] if rank == 0 else model[2:]
    steps = TrainingSteps(seen, part)
    optimizer = torch.optim.SGD(part.parameters(), lr=case["rate"])
    for x, y in zip(*(torch.tensor(one) for one in case["arrays"]), strict=True):
        steps.steps.append(steps.now())
        nothing = torch.full_like(x, float("nan"))
        mine(rank, part, optimizer, x if rank == 0 else nothing, y)
    seen["end"] = steps.now()


def shard(watch: RankWatch, rank: int, mine: Any, case: Case, seen: Seen) -> None:
    """mine(weights, batches): weights come one at a time, so that no rank needs to hold all."""
    weights = (torch.tensor(one) for one in case["weights"].values())
    seen["returned"] = plain(mine(weights, RankBatches(watch, case, rank)))


class GivenGradients(nn.Module):  # type: ignore[misc]
    """A model whose loss has any gradient that is wanted."""

    def __init__(self, like: list[Any]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros_like(one) for one in like)

    def forward(self, given: list[Any]) -> Any:
        """The loss."""
        return sum((w * g).sum() for w, g in zip(self.weights, given, strict=True))


def hook(watch: RankWatch, rank: int, mine: Any, case: Case, seen: Seen) -> None:
    """mine(state, bucket) is DDP's hook, from step 2 on: before, DDP builds its buckets anew."""
    given = [torch.tensor(one) for one in case["given"][rank]]
    model = GivenGradients(given)
    replica = DistributedDataParallel(model, bucket_cap_mb=1e-6)  # each gradient a bucket
    state, seen["found"] = dict[Any, Any](), []

    def called(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        first = len(seen["found"]) < 2
        future = allreduce_hook(None, bucket) if first else mine(state, bucket)
        if not hasattr(future, "then"):
            raise TypeError("the hook must return a future")
        return future

    replica.register_comm_hook(None, called)
    for _ in range(2 + case["steps"]):
        seen["before"] = len(watch.events)  # the last step
        replica.zero_grad()
        replica(given).backward()
        seen["found"].append([array(one.grad) for one in model.weights])


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention with heads of 4 columns."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Any) -> Any:
        """The output has the shape of x: batch, tokens, width."""
        cut = [one(x).unflatten(-1, (-1, 4)).transpose(1, 2) for one in (self.q, self.k, self.v)]
        heads = nn.functional.scaled_dot_product_attention(*cut, is_causal=True)
        return self.o(heads.transpose(1, 2).flatten(2))


class GatedMLP(nn.Module):  # type: ignore[misc]
    """An MLP with a gate."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Any) -> Any:
        """The output has the shape of x."""
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):  # type: ignore[misc]
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(16), Attention(16)
        self.norm2, self.mlp = nn.LayerNorm(16), GatedMLP(16, 24)

    def forward(self, x: Any) -> Any:
        """The output has the shape of x."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def local(tensor: Any) -> Any:
    """What this rank holds of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def layer(watch: RankWatch, rank: int, mine: Any, case: Case, seen: Seen) -> None:
    """mine(whole, ...) makes this rank's part of a layer, which is updated after each backward.

    With the case's `tokens`, a rank gets its own tokens. Without a function, it is the whole.
    """
    whole = made(case, rank, Block() if case.get("block") else layers(case))
    given = [init_device_mesh("cpu", (case["ranks"],))] if case.get("block") else []
    part = mine(whole, *given) if mine else whole
    if not isinstance(part, nn.Module):
        seen["returned"] = type(part).__name__
        return
    weights = dict(part.named_parameters())
    seen["held"] = {name: list(local(one).shape) for name, one in weights.items()}
    seen["stored"] = sum(local(one).untyped_storage().nbytes() for one in weights.values())
    optimizer = torch.optim.SGD(weights.values(), lr=case["rate"]) if weights else None
    seen["steps"], seen["gradients"] = [], []
    pieces = case["ranks"] if case.get("tokens") else 1
    for step in zip(*(torch.tensor(one) for one in case["arrays"]), strict=True):
        x, dy = (one.chunk(pieces)[rank % pieces].clone() for one in step)
        y = local(part(x.requires_grad_()))
        seen["steps"].append([array(y)])
        if y.shape != dy.shape:
            return
        y.backward(dy)
        seen["steps"][-1].append(array(torch.zeros_like(x) if x.grad is None else x.grad))
        kept = {n: one.grad for n, one in weights.items() if one.grad is not None}
        seen["gradients"].append({name: array(local(one)) for name, one in kept.items()})
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()


def pipeline(watch: RankWatch, rank: int, mine: Any, case: Case, seen: Seen) -> None:
    """A step of the stages, by the case's rows of PyTorch's actions; the gradients of this one."""
    from torch.distributed.pipelining import PipelineStage, schedules

    stages, count = case["ranks"], case["micro_batches"]
    rows = {
        r: [schedules._Action.from_str(one) for one in row] for r, row in enumerate(case["rows"])
    }
    x, y = (torch.tensor(one) for one in case["arrays"])
    model = made(case, rank, layers(case))
    part = model[2 * rank : 2 * rank + 2]
    stage = PipelineStage(part, rank, stages, torch.device("cpu"))
    run = schedules._PipelineScheduleRuntime([stage], count, nn.functional.mse_loss)
    run._prepare_schedule_with_comms(rows)
    run.step(*([x] if rank == 0 else []), target=y if rank == stages - 1 else None)
    seen["gradients"] = {name: array(one.grad) for name, one in part.named_parameters()}


PROGRAMS = {
    "train": train,
    "split": split,
    "shard": shard,
    "hook": hook,
    "layer": layer,
    "pipeline": pipeline,
    "resume": resume,
}
