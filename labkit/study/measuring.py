"""What the ranks of a study run: part after part, in rounds, until its seconds are over.

A part times several contenders in turn, in an order drawn anew in each round, so that a machine
which drifts meets all of them. Only complete rounds are written. Rank 0 keeps the time and writes.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import sqrt
from typing import Any, NamedTuple, Protocol

from labkit.cluster.ranks.environment import THREADS, set_threads
from labkit.hardware.machine import core_times, usable_cores

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)  # bytes of an all-reduce
BATCH = {"dense": 128, "convolutional": 64, "transformer": 32}
LOSS_BATCHES, TARGET = (32, 128, 512), 0.5  # mean cross-entropy of the last 2,048 images
RATE = 0.001  # of Adam at a batch of 32; it grows with the square root of the batch
MOST_ROUNDS = 200
# Floating-point operations of a training step, for each image: twice the multiplications of a
# forward pass, three times over (values, gradients of weights, gradients of inputs), where the
# first layer needs no gradient of its input.
FIRST = {"dense": 784 * 128, "convolutional": 26 * 26 * 16 * 9, "transformer": 28 * 28 * 128}
REST = {
    "dense": 128 * 10,
    "convolutional": 11 * 11 * 32 * 144 + 800 * 10,
    "transformer": 2 * (28 * 12 * 128 * 128 + 2 * 28 * 28 * 128) + 128 * 10,
}
PARAMETERS = {"dense": 101_770, "convolutional": 12_810, "transformer": 401_546}
FLOPS = {model: 4 * FIRST[model] + 6 * REST[model] for model in FIRST}


class Contender(NamedTuple):
    """`call(count)` does something `count` times and waits for it; `work` is what one of them does.

    Work is floating-point operations, bytes or images.
    """

    call: Callable[[int], object]
    work: float


Makers = Mapping[str, Callable[[], Contender]]


class Workplace(Protocol):
    """What a framework has to offer; on each rank one."""

    name: str
    rank: int
    devices: int
    on: str  # "2 logical CPUs with one core each"
    gpu: bool

    def gather(self, *numbers: float) -> list[tuple[float, ...]]:
        """Returns the numbers of every rank, to every rank; no rank is back before all called."""

    def rates(self, what: str) -> Makers:
        """Returns products of matrices ("gemm") or copies ("copy") on a GPU."""

    def all_reduces(self, sizes: tuple[int, ...]) -> Makers:
        """Returns sums over all devices of so many bytes."""

    def steps(self, model: str, batch: int) -> Makers:
        """Returns training steps: alone, strong, weak, and strong without parts of a step."""

    def run_to_loss(self, batch: int, rate: float) -> Callable[[int, float], tuple[int, float]]:
        """Returns a function of (round, seconds at most) that gives steps and the loss reached."""


def measure(place: Workplace, plan: dict[str, Any]) -> None:
    """Measure all parts of the plan, on this rank."""
    write: Any = _writer(plan) if place.rank == 0 else _ignore
    write(software=_software(place.name))
    left = sum(part["weight"] for part in plan["parts"])
    for part in plan["parts"]:
        began, busy = time.time(), _busy()
        own = time.process_time()
        # The clock of rank 0 counts, and what a part leaves or takes too much is the next ones'.
        seconds = place.gather((plan["until"] - began) * part["weight"] / left)[0][0]
        left -= part["weight"]
        until = time.monotonic() + seconds
        what = {k: part[k] for k in ("key", "framework", "devices")}
        rounds, says = 0, "no time was left"
        if seconds > 0.1:
            rounds, says = _part(place, part, what, until, write)
        used = sum(numbers[0] for numbers in place.gather(time.process_time() - own))
        now, passed = _busy(), time.time() - began
        others = max(0.0, (now - busy - used) / max(passed, 1e-3) / len(usable_cores()))
        write(
            part=part["part"], **what, outcome="done" if rounds else "cut off", says=says,
            on=place.on, start=began - plan["wall"], stop=time.time() - plan["wall"],
            threads=place.devices if place.gpu else len(usable_cores()), others=min(1.0, others),
        )  # fmt: skip


def _ignore(**_: object) -> None:
    """Writes nothing: rank 0 does."""


def _part(
    place: Workplace, part: dict[str, Any], what: dict[str, Any], until: float, write: Any
) -> tuple[int, str]:
    """Measure one part. Returns its complete rounds, and what there is to say about it."""
    name = part["part"]
    if name in ("gemm", "copy"):
        with one_thread():
            makers = place.rates(name) if place.gpu else _cpu_rates(name)
            return _rounds(place, name, what, makers, until, write, sample=0.03)
    if name == "all-reduce":
        sizes = (*SIZES, 256 << 20) if place.gpu else SIZES
        return _rounds(place, name, what, place.all_reduces(sizes), until, write, sample=0.03)
    if name == "step":
        makers = place.steps(part["key"], BATCH[part["key"]])
        return _rounds(place, name, what, makers, until, write, sample=0.15)
    return _losses(place, what, until, write)


def _rounds(
    place: Workplace, name: str, what: dict[str, Any], makers: Makers, until: float, write: Any,
    sample: float,
) -> tuple[int, str]:  # fmt: skip
    """Make the contenders, as long as there is time, and call each once in every round."""
    share = (until - time.monotonic()) / len(makers)
    contenders: dict[str, Contender] = {}
    counts: dict[str, int] = {}
    slowest, says = 0.0, ""
    for contender, make in makers.items():
        began = time.monotonic()
        left = place.gather(until - began)[0][0]
        if contenders and left < 1.5 * slowest + 0.2:
            says = f"no time was left for {', '.join(n for n in makers if n not in contenders)}"
            break
        contenders[contender] = made = make()
        made.call(1)  # warm
        probe = _timed(place, made, 2)[1] / 2
        wanted = max(sample, share / MOST_ROUNDS)
        counts[contender] = max(1, round(wanted / max(probe, 1e-7)))
        slowest = max(slowest, place.gather(time.monotonic() - began)[0][0])
    draw, number, longest = random.Random(1), 0, 0.0
    while True:
        began = time.monotonic()
        if number and place.gather(until - began)[0][0] < longest:
            return number, says
        lines = []
        for contender in draw.sample(list(contenders), len(contenders)):
            made, count = contenders[contender], counts[contender]
            start = time.time()
            lines.append((contender, count * made.work, start, *_timed(place, made, count), count))
        for contender, work, start, cpu, wall, count in lines:
            write(
                sample=name, **what, contender=contender, round=number, start=start, wall=wall,
                cpu=cpu, work=work, count=count,
            )  # fmt: skip
        number, longest = number + 1, time.monotonic() - began


def _timed(place: Workplace, made: Contender, count: int) -> tuple[float, float]:
    """Returns CPU seconds of all ranks, and seconds of the slowest, from when all were ready."""
    place.gather(0.0)
    began, cpu = time.perf_counter(), time.process_time()
    made.call(count)
    found = place.gather(time.process_time() - cpu, time.perf_counter() - began)
    return sum(one[0] for one in found), max(one[1] for one in found)


def _losses(place: Workplace, what: dict[str, Any], until: float, write: Any) -> tuple[int, str]:
    """Train to the loss again and again, with each batch in every round."""
    runs = {b: place.run_to_loss(b, RATE * sqrt(b / LOSS_BATCHES[0])) for b in LOSS_BATCHES}
    number, longest = 0, 0.0
    while True:
        lines, began = [], time.monotonic()
        for batch in random.Random(number).sample(LOSS_BATCHES, len(LOSS_BATCHES)):
            left = place.gather(until - time.monotonic())[0][0]
            start, cpu, wall = time.time(), time.process_time(), time.perf_counter()
            steps, loss = runs[batch](number, left) if left > longest / 2 else (0, TARGET + 1)
            if loss > TARGET:
                return number, "" if number else f"no run has reached a loss of {TARGET} in time"
            used = time.process_time() - cpu, time.perf_counter() - wall
            lines.append((str(batch), start, *used, steps))
        for contender, start, cpu, wall, steps in lines:
            write(
                sample="loss", **what, contender=contender, round=number, start=start, wall=wall,
                cpu=cpu, work=steps * int(contender), count=steps,
            )  # fmt: skip
        number, longest = number + 1, time.monotonic() - began


@contextmanager
def one_thread() -> Iterator[None]:
    """NumPy's products on one thread: a second core may be taken, and then it measures that."""
    before = {name: os.environ.get(name) for name in THREADS[:2]}
    os.environ.update(dict.fromkeys(before, "1"))
    set_threads()
    yield
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    set_threads()


def _cpu_rates(what: str) -> Makers:
    import numpy as np

    def product(n: int) -> Contender:
        a, b, c = (np.full((n, n), 0.5, "float32") for _ in range(3))

        def call(count: int) -> None:
            for _ in range(count):
                np.matmul(a, b, out=c)

        return Contender(call, 2.0 * n**3)

    def copy(nbytes: int) -> Contender:
        source, target = np.ones(nbytes, "uint8"), np.ones(nbytes, "uint8")

        def call(count: int) -> None:
            for _ in range(count):
                np.copyto(target, source)

        return Contender(call, 2.0 * nbytes)  # read and written

    if what == "gemm":
        return {f"float32/{n}": partial(product, n) for n in (512, 1024)}
    return {"64 MB": lambda: copy(64_000_000)}


def _busy() -> float:
    """Returns the seconds that the cores which this process may use have been busy since boot."""
    usable = set(usable_cores())
    return sum(work for core, (work, _) in core_times().items() if core in usable)


def _software(framework: str) -> dict[str, Any]:
    known = {"python": platform.python_version()}
    known |= {name: importlib.import_module(name).__version__ for name in (framework, "numpy")}
    names = ("TF_ENABLE_ONEDNN_OPTS", *THREADS)
    found = {name: os.environ[name] for name in names if os.environ.get(name, "").isalnum()}
    return {**known, "environment": found}


def _writer(plan: dict[str, Any]) -> Callable[..., None]:
    """Returns what appends a line to the recording, whole, also beside the sampler's lines."""
    out = os.open(plan["file"], os.O_WRONLY | os.O_APPEND)

    def write(**content: Any) -> None:
        if "sample" in content:  # seconds since the recording began, as in all its lines
            content["start"] -= plan["wall"]
        short = {k: round(v, 7) if isinstance(v, float) else v for k, v in content.items()}
        os.write(out, f"{json.dumps(short, separators=(',', ':'))}\n".encode())

    return write
