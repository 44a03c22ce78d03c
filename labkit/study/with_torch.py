"""A study under PyTorch: a process for each device, DistributedDataParallel, NCCL or gloo."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from labkit import datasets
from labkit.study.measuring import TARGET, Contender, Makers, measure

PRELOAD = ("torch", "torch.distributed", "torch._dynamo")  # DDP's constructor imports the last


def study(rank: int, plan: dict[str, Any]) -> None:
    """Measure the parts of a plan, as one of its ranks."""
    measure(Torch(rank), plan)


class Torch:
    """See `measuring.Workplace`."""

    name = "torch"

    def __init__(self, rank: int) -> None:
        import torch
        import torch.distributed as dist

        gpus, local = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
        self.gpu = bool(gpus)
        self.device = torch.device("cuda", local % gpus) if gpus else torch.device("cpu")
        if gpus:
            torch.cuda.set_device(self.device)
        # Ranks talk about the time by gloo, which does not keep a GPU busy while they wait.
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if gpus else "gloo", timeout=dt.timedelta(seconds=120)
        )
        self.control = dist.new_group(backend="gloo") if gpus else dist.group.WORLD
        self.rank, self.devices = rank, dist.get_world_size()
        what = f"{self.devices} × {torch.cuda.get_device_name()}, NCCL" if gpus else "gloo"
        ranks = f"{self.devices} rank{'s' * (self.devices > 1)}"
        self.on = what if gpus else f"{ranks} of {torch.get_num_threads()} threads, {what}"
        data = datasets.mnist()
        self._images = torch.tensor(data.x_train).to(self.device)
        self._labels = torch.tensor(data.y_train.ravel().astype("int64")).to(self.device)

    def gather(self, *numbers: float) -> list[tuple[float, ...]]:
        """Returns the numbers of every rank."""
        import torch
        import torch.distributed as dist

        if self.devices == 1:
            return [numbers]
        mine = torch.tensor(numbers, dtype=torch.float64)
        found = [torch.empty_like(mine) for _ in range(self.devices)]
        dist.all_gather(found, mine, group=self.control)
        return [tuple(one.tolist()) for one in found]

    def synchronize(self) -> None:
        """Wait for the GPU."""
        import torch

        if self.gpu:
            torch.cuda.synchronize()

    def repeated(self, once: Callable[[], object], work: float) -> Contender:
        """Returns a contender that calls `once` so many times and waits for the device."""

        def call(count: int) -> None:
            for _ in range(count):
                once()
            self.synchronize()

        return Contender(call, work)

    def rates(self, what: str) -> Makers:
        """Returns products and copies on this rank's GPU."""
        import torch

        def product(n: int, kind: str) -> Contender:
            a = torch.full((n, n), 0.01, dtype=getattr(torch, kind), device=self.device)
            c = torch.empty_like(a)
            return self.repeated(lambda: torch.mm(a, a, out=c), 2.0 * n**3)

        def copy() -> Contender:
            source = torch.ones(250_000_000, device=self.device)
            target = torch.empty_like(source)
            return self.repeated(lambda: target.copy_(source), 2e9)

        if what == "gemm":
            return {f"{k}/8192": partial(product, 8192, k) for k in ("float32", "bfloat16")}
        return {"1 GB": copy}

    def all_reduces(self, sizes: tuple[int, ...]) -> Makers:
        """Returns the backend's all-reduce."""
        import torch
        import torch.distributed as dist

        def of(nbytes: int) -> Contender:
            held = torch.zeros(nbytes // 4, device=self.device)
            return self.repeated(lambda: dist.all_reduce(held), nbytes)

        return {str(nbytes): partial(of, nbytes) for nbytes in sizes}

    def steps(self, model: str, batch: int) -> Makers:
        """Returns steps of DistributedDataParallel."""
        share = batch // self.devices

        def alone() -> Contender:
            if self.rank:  # the first rank computes, the others wait
                return Contender(lambda _: None, batch)
            return self.repeated(Trainer(self, model, batch, ddp=False).step, batch)

        def strong(**how: bool) -> Contender:
            return self.repeated(Trainer(self, model, share, **how).step, share * self.devices)

        def weak() -> Contender:
            return self.repeated(Trainer(self, model, batch).step, batch * self.devices)

        if self.devices == 1:
            one = {"strong": lambda: strong(ddp=False)}
            return {**one, "same images": lambda: strong(ddp=False, same=True)}
        return {
            "alone": alone, "strong": strong, "weak": weak,
            "no reduction": lambda: strong(reduce=False),
            "same images": lambda: strong(reduce=False, same=True),
        }  # fmt: skip

    def run_to_loss(self, batch: int, rate: float) -> Callable[[int, float], tuple[int, float]]:
        """Returns what trains the dense model from its first weights, with another order."""
        chunk = max(1, 2048 // batch)

        def run(number: int, seconds: float) -> tuple[int, float]:
            until, steps, loss = time.monotonic() + seconds, 0, TARGET + 1
            trainer = Trainer(self, "dense", batch // self.devices, rate=rate, seed=number,
                              ddp=self.devices > 1)  # fmt: skip
            while loss > TARGET and self.gather(until - time.monotonic())[0][0] > 0:
                loss = sum(trainer.step().item() for _ in range(chunk)) / chunk
                loss = sum(one[0] for one in self.gather(loss)) / self.devices
                steps += chunk
            return steps, loss

        return run


class Trainer:
    """A model with Adam, and one step of it."""

    def __init__(
        self, place: Torch, model: str, batch: int, *, ddp: bool = True, reduce: bool = True,
        same: bool = False, rate: float = 0.001, seed: int = 0,
    ) -> None:  # fmt: skip
        import torch
        from torch.nn.parallel import DistributedDataParallel

        torch.manual_seed(0)
        self.model = MODELS[model]().to(place.device)
        if ddp:
            own = [place.device] if place.gpu else None
            self.model = DistributedDataParallel(self.model, device_ids=own)
        self._skip = self.model.no_sync if ddp and not reduce else nullcontext
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=rate)
        self._images, self._labels, self._batch, self._same = (
            place._images, place._labels, batch, same,
        )  # fmt: skip
        self._stride, self._first = batch * (place.devices if ddp else 1), batch * place.rank
        draw = torch.Generator().manual_seed(seed)
        self._order = torch.randperm(len(self._labels), generator=draw).to(place.device)
        self._at = 0

    def step(self) -> Any:
        """Train one step. Returns its loss on this rank."""
        from torch.nn.functional import cross_entropy

        if not (self._same and self._at):
            last = len(self._labels) - self._stride
            start = (self._at * self._stride) % last + self._first
            rows = self._order[start : start + self._batch]
            self._now = self._images[rows].float() / 255, self._labels[rows]
        self._at += 1
        images, labels = self._now
        with self._skip():
            loss = cross_entropy(self.model(images), labels)
            self._optimizer.zero_grad()
            loss.backward()
        self._optimizer.step()
        return loss.detach()


def _dense() -> Any:
    from torch import nn

    head = nn.Linear(784, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
    return nn.Sequential(nn.Flatten(), *head)


def _convolutional() -> Any:
    from torch import nn

    first = nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Dropout(0.2), nn.Linear(800, 10))


def _transformer() -> Any:
    from torch import nn

    class Transformer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            block = nn.TransformerEncoderLayer(
                128, 4, 512, 0.0, "gelu", batch_first=True, norm_first=True
            )
            self.first, self.head = nn.Linear(28, 128), nn.Linear(128, 10)
            self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)

        def forward(self, rows: Any) -> Any:
            return self.head(self.blocks(self.first(rows)).mean(1))

    return Transformer()


MODELS = {"dense": _dense, "convolutional": _convolutional, "transformer": _transformer}
