"""Judges of PyTorch functions: two ranks must reach the weights of one process, in NumPy.

The functions `..._rank` run on the ranks of the environment, and call the student's function.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.exercises.judges.answers import judged
from labkit.exercises.judges.frameworks import BATCH, RANKS, error, mistake, run
from labkit.exercises.task import Wrong

Array = NDArray[np.float32]
RATE = 0.5
STEPS = 4
NAMES = tuple(
    f"{part} of the {one} layer" for one in ("first", "second") for part in ("weights", "biases")
)


def data() -> tuple[list[Array], Array, Any]:
    """Weights (inputs × outputs) and biases of two layers; images and labels of the steps."""
    random = np.random.default_rng(24)
    shapes = ((6, 8), (8,), (8, 4), (4,))
    weights = [random.normal(size=shape).astype("float32") for shape in shapes]
    images = random.normal(size=(STEPS, BATCH, 6)).astype("float32")
    return weights, images, random.integers(0, 4, (STEPS, BATCH))


def serial(
    scale: float = 1.0,
    keep: float = 0,
    loss: str = "",
    same: bool = False,
    back: int = 1,
) -> dict[str, Array]:
    """The weights after SGD on whole batches: forward, backward and update by hand."""
    weights, images, labels = data()
    part = slice(None, None, RANKS if same else 1)
    kept = [np.zeros_like(one) for one in weights]
    for x, y in zip(images[:, part], labels[:, part], strict=True):
        first, bias, second, offset = weights
        hidden = np.maximum(x @ first + bias, 0)
        wrong = error(hidden @ second + offset, y, loss)
        behind = back * wrong @ second.T * (hidden > 0)
        gradients = x.T @ behind, behind.sum(axis=0), hidden.T @ wrong, wrong.sum(axis=0)
        kept = [keep * old + new for old, new in zip(kept, gradients, strict=True)]
        weights = [w - scale * RATE * g for w, g in zip(weights, kept, strict=True)]
    return dict(zip(NAMES, weights, strict=True))


def same_weights(program: Callable[..., Any]) -> Callable[[Any], None]:
    """`program(rank, function)` returns a rank's weights by name, and its first fault or ""."""

    def examine(answer: Any) -> None:
        found_by_rank = run("torch", in_rank, __name__, program.__name__, answer, ranks=RANKS)
        for rank, (_, fault) in enumerate(found_by_rank):
            if fault:
                raise Wrong(f"Rank {rank}: {fault}")
        (zero, _), (one, _) = found_by_rank
        apart = {name: zero[name] - one[name] for name in {*zero} & {*one}}
        if any(not abs(far).max() < 1e-5 for far in apart.values()):
            cause = " The ranks have different weights: they do not use the same gradients."
            start = dict(zip(NAMES, data()[0], strict=True))
            if all(np.allclose(far, start[name], atol=1e-4) for name, far in apart.items()):
                cause = " They differ from rank to rank as at the start: broadcast those of rank 0."
        else:
            cause = " The ranks have equal weights." * bool(apart)
            cause += mistake({**zero, **one}, serial)
        for name, right in serial().items():
            for rank, (weights, _) in enumerate(found_by_rank):
                far = abs(weights.get(name, right) - right).max()
                if not far < 1e-4:  # also NaN
                    far_text = f"the {name} differ by {far:.2g} from those of one process."
                    raise Wrong(f"Rank {rank}: {far_text}{cause}")

    return judged(examine)


def in_rank(rank: int, module: str, name: str, mine: Callable[..., Any]) -> Any:
    """Imports all that it uses, so that its source is enough for another version of Python."""
    import importlib

    # Named here: imported once, before the ranks are forked. An optimizer uses the first.
    import torch._dynamo
    import torch.distributed.fsdp

    assert torch
    return getattr(importlib.import_module(module), name)(rank, mine)


def ddp_rank(rank: int, mine: Callable[..., Any]) -> Any:
    """mine(model, images, labels) trains; each rank begins with weights of its own."""
    model, images, labels = _begin(scale=1.0 - rank)
    sizes = _batch_sizes(model)
    mine(model, images, labels)
    return _weights(model), _too_many(sizes)


def sharded_rank(_: int, mine: Callable[..., Any]) -> Any:
    """mine(model, mesh, images, labels) shards the layers and the model, and trains."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    model, images, labels = _begin()
    sizes = _batch_sizes(model)
    mine(model, init_device_mesh("cpu", (RANKS,)), images, labels)
    if not all(isinstance(one, FSDPModule) for one in (model, model[0], model[2])):
        return {}, "Call fully_shard for each Linear layer, and then for the model."
    if not all(isinstance(one, DTensor) for one in model.parameters()):
        return {}, "After the training, the parameters are whole tensors."
    return _weights(model), _too_many(sizes)


def split_rank(rank: int, mine: Callable[..., Any]) -> Any:
    """mine(rank, part, optimizer, x, y) makes one step of the half of the model that is here."""
    import torch

    model, images, labels = _begin()
    part = model[:2] if rank == 0 else model[2:]
    optimizer = torch.optim.SGD(part.parameters(), lr=RATE)
    for x, y in zip(images, labels, strict=True):
        nothing = torch.full_like(x, float("nan"))
        mine(rank, part, optimizer, x if rank == 0 else nothing, y)
    here = NAMES[2 * rank : 2 * rank + 2]
    found = {name: one for name, one in _weights(model).items() if name in here}
    lost = any(np.isnan(one).any() for one in found.values())
    return found, "the weights are NaN. Rank 1 has no x: it takes what rank 0 sends." * lost


def _begin(scale: float = 1.0) -> Any:
    """The process group, and model, images and labels as tensors."""
    import datetime as dt

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=30))
    weights, images, labels = data()
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    with torch.no_grad():
        for parameter, array in zip(model.parameters(), weights, strict=True):
            parameter.copy_(scale * torch.tensor(array.T))
    return model, torch.tensor(images), torch.tensor(labels)


def _batch_sizes(model: Any) -> list[int]:
    """Of all forward passes to come."""
    sizes: list[int] = []
    model[0].register_forward_pre_hook(lambda _, x: sizes.append(len(x[0])))
    return sizes


def _too_many(sizes: list[int]) -> str:
    most, share = max(sizes, default=0), BATCH // RANKS
    return f"a forward pass has {most} examples; a rank's share is {share}." * (most > share)


def _weights(model: Any) -> dict[str, Array]:
    """The arrays of a model, with the axes in TensorFlow's order."""
    whole = [getattr(one, "full_tensor", lambda one=one: one)() for one in model.parameters()]
    arrays = (one.detach().numpy().T.copy() for one in whole)
    return dict(zip(NAMES, arrays, strict=True))
