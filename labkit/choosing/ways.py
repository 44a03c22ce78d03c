"""Every way to run a training on given devices: what a device holds, and how long a step takes.

All ways take the same global batch: the batch of one device times the devices that are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from labkit.choosing.choices import CHOICES
from labkit.choosing.facts import RESTART, Facts
from labkit.kinds import bytes_text, ratio_text, seconds_text
from labkit.known_hardware import LINKS
from labkit.memory.step_memory import USABLE

# Ways that are no synchronous training of whole examples: asked for only where none of those is.
LAST = ("spatial", "parameter_server")
# Ways whose speed-ups differ by less are as fast as each other: the first of CHOICES is simplest.
# Ways that cut a model need a new program: they must be faster by more.
AS_FAST, NEW_PROGRAM = 0.05, 0.20
CUT = ("pipeline", "tensor", "hybrid")
PCIE = LINKS["PCIe 3 x16"].bandwidth  # from a device to its host


@dataclass(frozen=True)
class Way:
    """One way on some devices. The speed-up is over the fastest device, as if it had room.

    Of the seconds of `communication` in a step `low` counts none as hidden by computing, `high` all
    that can be; `share` is that of computing in `low`. Without a step time neither counts any.
    """

    key: str
    devices: int
    held: float
    fits: bool
    communication: float
    low: float
    high: float
    share: float
    how: str = ""

    @property
    def middle(self) -> float:
        """The speed-up that ways are compared by."""
        return (self.low + self.high) / 2

    @property
    def score(self) -> float:
        """The speed-up that ways are chosen by: less where the program must be written anew."""
        return self.middle / (1 + NEW_PROGRAM * (self.key in CUT))

    @property
    def gain(self) -> str:
        """The speed-up in words."""
        both = dict.fromkeys(map(ratio_text, (self.low, self.high)))
        return f"{' to '.join(both)} of one device"

    @property
    def name(self) -> str:
        """As the table of choices calls it."""
        return CHOICES[self.key].name

    def text(self, f: Facts) -> str:
        """The way in numbers."""
        text = self.name + f" on {self.devices:,}" * (self.devices > 1)
        text += f" ({self.how})" * bool(self.how) + f": {bytes_text(self.held)} on a device"
        if not self.fits:
            return text
        if self.communication:
            text += f"; {seconds_text(self.communication)} of communication per step"
        if f.alone is None:
            return text
        times = (seconds_text(f.alone / one) for one in (self.low, self.high) if one)
        if self.communication:
            text += f", {self.share:.0%} is computation"
        return f"{text}; {self.gain}, {' to '.join(dict.fromkeys(times))}"


def ways(f: Facts) -> list[Way]:
    """All ways, the simplest first; of those with one name and as many devices the fastest."""
    found: dict[tuple[str, int], Way] = {}
    for way in (one for machines in {1, f.machine.machines} for one in _on(f, machines)):
        kind = way.key, way.devices
        found[kind] = max(way, found.get(kind, way), key=_rank)
    return sorted(found.values(), key=lambda way: (list(CHOICES).index(way.key), way.devices))


def _rank(way: Way) -> tuple[bool, float, float]:
    return way.fits, way.middle if way.fits else 0.0, -way.held


def _on(f: Facts, m: int) -> Iterator[Way]:
    """The ways on all devices of m machines, and on one device."""
    d, (w, g, o) = f.machine.devices, f.sizes
    n, state = m * d, w + g + o
    one = _way(f, "one_device", 1, 1, state)
    layers = f.model.shape["layers"] if f.model.shape else 1
    gathered, host = w / layers * (layers > 1), USABLE * f.machine.host_memory
    if m == 1:
        yield replace(one, key="accumulate") if "accumulated" in one.how else one
        if state <= host:
            each, share = f.ring(2 * w + g, 1, d, layers), (w + g) / d
            yield _way(f, "central", 1, d, share + gathered * (d > 1), share / PCIE, each=each)
    if n == 1:
        return
    rows = f.data.batch * f.model.row_bytes  # that a device reads
    reduce = f.reduce(2 * g + n * rows, m, n)  # their gradients are gathered
    yield _way(f, "mirrored" if m == 1 else "multi_worker", m, n, state, reduce)
    if m > 1:  # a worker that is lost stops no other; each sends and fetches for itself
        up, sent = 1 / (1 + RESTART / f.machine.mtbf), f.ring(2 * d * (g + rows), m, m)
        yield _way(f, "parameter_server", m, n, state, sent, kept=up, how="all also serve")
    yield _way(f, "spatial", m, n, state, reduce, cut=n, how="without the borders")
    for ranks in {d, n} - {1}:
        for stage, weights in ((2, w), (3, w / ranks + gathered)):
            inside = m if ranks == n else 1
            once, each = (w, g) if stage == 2 else (0.0, 2 * w + g)  # bytes that are sent
            between = f.ring(2 * g, m, m) if inside < m else 0.0
            yield _way(
                f, "hsdp" if inside < m else "sharded", m, n, weights + (g + o) / ranks,
                f.ring(once, inside, ranks) + between, each=f.ring(each, inside, ranks, layers),
                how=f"stage {stage}, {ranks:,} devices share",
            )  # fmt: skip
    if f.model.embeddings:
        tables = (w + o) * f.model.embeddings / f.model.parameters
        sent = f.reduce(2 * g, m, n) + f.ring(2 * d * rows, m, m)
        cards, host_link = f.ring(2 * rows, 1, d), 2 * rows / PCIE
        yield _way(f, "embeddings", m, n, state - tables * (n - 1) / n, sent + cards)
        if tables / m <= host:
            yield _way(f, "embeddings", m, n, state - tables, sent + host_link, how="on the hosts")
    else:  # a table is one layer: no stages are as large as each other
        yield from _layouts(f, m)
    if f.trials > 1 and one.fits and m == f.machine.machines:
        yield _trials(f, one, n)


def _layouts(f: Facts, m: int) -> Iterator[Way]:
    """Tensor × pipeline × data, the optimizer sharded over the data ranks (ZeRO-1)."""
    d, b, shape = f.machine.devices, f.data.batch, f.model.shape or {}
    n, (w, g, o) = m * d, f.sizes
    layers, wide = shape.get("layers", 0), 2 * shape.get("sequence", 0) * shape.get("hidden", 0)
    for t in (one for one in range(1, d + 1) if d % one == 0):
        if t > 1 and (not shape or shape["heads"] % t):
            continue  # without the shape of a transformer nothing says how to cut a layer
        for p in (one for one in range(1, n // t + 1) if n // t % one == 0):
            cut, data = t * p, n // (t * p)
            if cut == 1 or (shape and p > layers):
                continue
            uneven = math.ceil(layers / p) * p / layers if shape else 1.0  # the longest stage
            key = "hybrid" if data > 1 or min(t, p) > 1 else "tensor" if t > 1 else "pipeline"
            # A machine sends what it holds of the gradients, and the inputs of the next stage.
            held = 2 * g * (min(1, d / cut) if m > 1 else 1 / cut)
            reduce = f.ring(held, m, data) if data > 1 else 0.0
            stage = wide or f.model.activation_bytes / p
            inside = m if cut > d else 1
            send = 2 * cut * b * stage * (p > 1)
            send /= f.machine.link if inside == 1 else min(f.machine.link, f.machine.network)
            reduces = t * b * layers * (6 if f.model.recomputed else 4)  # forward once more
            blocks = reduces * f.ring(2 * wide, 1, t) if t > 1 else 0.0
            parts = {"tensor": t, "pipeline": p, "data": data}
            yield _way(
                f, key, m, n, ((w + g) / cut + o / n) * uneven, reduce + send, exposed=blocks,
                compute=uneven * (1 + (p - 1) / (cut * b)), cut=t, micro=1, lockstep=True,
                how=" × ".join(f"{name} {size}" for name, size in parts.items() if size > 1),
            )  # fmt: skip


def _trials(f: Facts, one: Way, n: int) -> Way:
    """A training on each device; what is left in the last round shares the devices."""
    full, left = divmod(f.trials, n)
    low, high, how = full / one.low, full / one.high, f"{f.trials:,} trainings"
    if left:
        few = n // left
        machines = math.ceil(few / f.machine.devices)
        nbytes = 2 * f.sizes[1] + few * f.data.batch * f.model.row_bytes
        reduce = f.reduce(nbytes, machines, few)
        last = _way(f, "trials", machines, few, sum(f.sizes), reduce)
        low, high = low + 1 / max(one.low, last.low), high + 1 / max(one.high, last.high)
        how += f", {left:,} of them on {few:,} devices each" * (few > 1)
    power = (1 + f.machine.slowest) / 2
    return replace(
        one, key="trials", devices=n, low=power * f.trials / low, high=power * f.trials / high,
        how=how, share=1.0,
    )  # fmt: skip


def _way(
    f: Facts, key: str, machines: int, devices: int, state: float, communication: float = 0.0,
    *, each: float = 0.0, exposed: float = 0.0, compute: float = 1.0, cut: int = 1,
    micro: int | None = None, lockstep: bool = False, kept: float | None = None, how: str = "",
) -> Way:  # fmt: skip
    """The way with the fewest micro-batches that fit; `each` is sent for each of them."""
    example = (f.model.activation_bytes + f.data.example_bytes * (key == "spatial")) / cut
    example += f.data.example_bytes * (key != "spatial")
    room = (f.usable - state) // example if example else math.inf
    most = int(max(1, min(room, micro or f.data.batch)))
    parts = math.ceil(f.data.batch / most)
    most = math.ceil(f.data.batch / parts)
    held = state + most * example
    notes: list[str] = [how] if how else []
    if micro is None and parts > 1 and held <= f.usable:
        notes.append(f"{parts} batches of {most} accumulated")
    if f.machine.slowest < 1 < devices and not lockstep:
        notes.append("uneven batches")
    if kept is None:
        kept = f.kept_time(machines)
        if kept < 1:
            notes.append("checkpoints")
    communication += each * (parts if micro is None else 1)
    slowest, step = f.machine.slowest if devices > 1 else 1.0, f.model.step_seconds
    power = kept * devices * (slowest if lockstep else (1 + slowest) / 2)
    low = high = power / compute
    share = 1.0
    if step is not None:
        busy = step * compute + exposed
        share = step / (busy + communication)
        low, high = power * share, power * step / max(busy, communication)
    return Way(
        key, devices, held, held <= f.usable, communication + exposed, low, high, share,
        ", ".join(notes),
    )  # fmt: skip
