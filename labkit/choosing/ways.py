"""Every way to run a training on given devices: one cost for all of them.

A way is a `Plan`: what a device holds, sends and computes. `cost` makes of it, on n devices:

    held      = state + micro-batch × example, and it fits in nine tenths of the memory
    a step    = computing + communication, if nothing overlaps (low)
              = the longer of both, if everything overlaps that can (high)
    speed-up  = n × speed of the devices × time that failures leave × one device's step / a step

All ways take the same global batch: the batch of one device times the devices that are used. Bytes
of ZeRO: Rajbhandari et al. 2020; of tensor and pipeline parallelism: Narayanan et al. 2021 and
Korthikanti et al. 2022; of context and expert parallelism: `mesh`; failures: Young 1974, Daly 2006.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from labkit.choosing.choices import CHOICES
from labkit.choosing.facts import RESTART, Facts
from labkit.choosing.mesh import expert_bytes, goes_around, ring_bytes, ulysses_bytes
from labkit.kinds import bytes_text, ratio_text, seconds_text
from labkit.known_hardware import GPUS, LINKS
from labkit.memory.step_memory import USABLE

# Ways that are no synchronous training of whole examples: asked for only where none of those is.
LAST = ("spatial", "parameter_server")
# Ways whose speed-ups differ by less are as fast as each other: the first of CHOICES is simplest.
# Ways that cut a model need a new program: they must be faster by more.
AS_FAST, NEW_PROGRAM = 0.05, 0.20
# A model with experts is such a program already.
CUT = ("pipeline", "tensor", "hybrid", "context")
PCIE = LINKS["PCIe 3 x16"].bandwidth  # from a device to its host
# Tokens at once with which an H100 computes as long as it reads the 16-bit weights of an expert.
BUSY_TOKENS = GPUS["H100 SXM"].flops / GPUS["H100 SXM"].bandwidth


@dataclass(frozen=True)
class Plan:
    """How a way divides a training among its devices; seconds and bytes are of one step."""

    key: str
    machines: int
    devices: int
    state: float  # bytes of weights, gradients and optimizer on a device
    sending: float = 0.0  # seconds of communication that computing can hide
    sending_again: float = 0.0  # more of them for each micro-batch
    waiting: float = 0.0  # seconds of communication that nothing can hide
    computing: float = 1.0  # over that of an even division: bubble, uneven stages
    divided_by: int = 1  # the devices that share the activations of an example
    lockstep: bool = False  # one example at a time, at the pace of the slowest device; otherwise
    # as many as fit, their gradients accumulated, and batches that follow the devices' speeds
    training: float | None = None  # the time that failures leave; None: of synchronous training
    how: str = ""
    why: str = ""  # the condition that makes it needed


@dataclass(frozen=True)
class Way:
    """What a plan costs. The speed-up is over the fastest device, as if it had room.

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
    why: str = ""

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
        """Returns the way in numbers."""
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
            text += f", {100 * self.share:.0f} % is computation"
        return f"{text}; {self.gain}, {' to '.join(dict.fromkeys(times))}"


def ways(f: Facts) -> list[Way]:
    """Returns all ways, the simplest first; of those with one name and as many devices the best."""
    found: dict[tuple[str, int], Way] = {}
    sizes = {1, f.machine.machines}
    all_ = [cost(f, plan) for machines in sizes for plan in _plans(f, machines)]
    # A sequence is divided where its activations fit in no other way, however short they are.
    shape, none = f.model.shape, not any(way.fits and way.key not in LAST for way in all_)
    if shape and none and f.shortened == f:
        all_ += [cost(f, plan) for machines in sizes for plan in _contexts(f, machines, shape)]
    for way in [*all_, *_trials(f)]:
        kind = way.key, way.devices
        found[kind] = max(way, found.get(kind, way), key=_rank)
    return sorted(found.values(), key=lambda way: (list(CHOICES).index(way.key), way.devices))


def _rank(way: Way) -> tuple[bool, float, float]:
    return way.fits, way.middle if way.fits else 0.0, -way.held


def cost(f: Facts, plan: Plan) -> Way:
    """Returns what a plan holds and how fast it is, with the fewest micro-batches that fit."""
    kept, inputs = f.model.activation_bytes, f.data.example_bytes
    divided_inputs = plan.key == "spatial"
    example = (kept + inputs * divided_inputs) / plan.divided_by + inputs * (not divided_inputs)
    room = (f.usable - plan.state) // example if example else math.inf
    parts = f.data.batch
    if not plan.lockstep:
        parts = math.ceil(f.data.batch / max(1, min(room, f.data.batch)))
    most = math.ceil(f.data.batch / parts)  # as equal as they can be
    held = plan.state + most * example

    slowest = f.machine.slowest if plan.devices > 1 else 1.0
    training = f.training_share(plan.machines) if plan.training is None else plan.training
    accumulated = parts > 1 and not plan.lockstep and held <= f.usable
    notes = {
        plan.how: bool(plan.how),
        f"{parts} batches of {most} accumulated": accumulated,
        "uneven batches": slowest < 1 and not plan.lockstep,
        "checkpoints": plan.training is None and training < 1,
    }
    how = ", ".join(note for note, true in notes.items() if true)
    power = training * plan.devices * (slowest if plan.lockstep else (1 + slowest) / 2)
    sending = plan.sending + plan.sending_again * parts
    low = high = power / plan.computing
    share, step = 1.0, f.model.step_seconds
    if step is not None:
        busy = step * plan.computing + plan.waiting
        share = step / (busy + sending)
        low, high = power * share, power * step / max(busy, sending)
    return Way(plan.key, plan.devices, held, held <= f.usable, sending + plan.waiting, low, high,
               share, how, plan.why)  # fmt: skip


def _plans(f: Facts, m: int) -> Iterator[Plan]:
    """Yields the plans on all devices of m machines; with m = 1 also those of one device."""
    d, (w, g, o) = f.machine.devices, f.sizes
    n, state = m * d, w + g + o
    if m == 1:
        yield _alone(f)
        yield from _central(f)
    if n == 1:
        return
    rows = f.data.batch * f.model.row_bytes  # of embeddings that a device reads
    reduce = f.reduce(2 * g + n * rows, m, n)  # the gradients of rows are gathered
    yield Plan("mirrored" if m == 1 else "multi_worker", m, n, state, reduce)
    if m > 1:  # a worker that is lost stops no other; each sends and fetches for itself
        up, sent = 1 / (1 + RESTART / f.machine.mtbf), f.ring(2 * d * (g + rows), m, m)
        yield Plan("parameter_server", m, n, state, sent, training=up, how="all also serve")
    yield Plan("spatial", m, n, state, reduce, divided_by=n, how="without the borders")
    yield from _sharded(f, m)
    if f.model.embeddings:
        yield from _embeddings(f, m)
    elif f.model.shape:  # else nothing says how to cut a layer, and what a stage sends
        yield from _layouts(f, m, f.model.shape)


def _alone(f: Facts) -> Plan:
    """Returns the plan of one device; where its batch does not fit, gradients are accumulated."""
    plan = Plan("one_device", 1, 1, sum(f.sizes))
    return replace(plan, key="accumulate") if "accumulated" in cost(f, plan).how else plan


def _central(f: Facts) -> Iterator[Plan]:
    """The host keeps variables and optimizer; each device has a share of weights and gradients."""
    d, (w, g, _) = f.machine.devices, f.sizes
    if sum(f.sizes) > USABLE * f.machine.host_memory:
        return
    share, again = (w + g) / d, f.ring(2 * w + g, 1, d, f.layers)
    yield Plan("central", 1, d, share + f.gathered * (d > 1), share / PCIE, sending_again=again)


def _sharded(f: Facts, m: int) -> Iterator[Plan]:
    """ZeRO stages 2 and 3, over all devices or inside each machine (HSDP).

    Stage 2 gathers the weights once a step, and reduces the gradients of each micro-batch; stage 3
    also gathers twice for each of them. Either sends (n-1)/n of the bytes.
    """
    d, (w, g, o) = f.machine.devices, f.sizes
    for ranks in {d, m * d} - {1}:
        inside = m if ranks == m * d else 1
        between = f.ring(2 * g, m, m) if inside < m else 0.0
        for stage in (2, 3):
            once, again = (w, g) if stage == 2 else (0.0, 2 * w + g)  # bytes
            weights = w if stage == 2 else w / ranks + f.gathered
            yield Plan(
                "hsdp" if inside < m else "sharded", m, m * d, weights + (g + o) / ranks,
                f.ring(once, inside, ranks) + between,
                sending_again=f.ring(again, inside, ranks, f.layers),
                how=f"stage {stage}, {ranks:,} devices share",
            )  # fmt: skip


def _embeddings(f: Facts, m: int) -> Iterator[Plan]:
    """The tables divided among devices or hosts; rows are fetched, and their gradients sent."""
    d, (w, g, o) = f.machine.devices, f.sizes
    n, rows = m * d, f.data.batch * f.model.row_bytes
    tables = (w + o) * f.model.embeddings / f.model.parameters
    sent = f.reduce(2 * g, m, n) + f.ring(2 * d * rows, m, m)
    state, cards = w + g + o - tables, f.ring(2 * rows, 1, d)
    yield Plan("embeddings", m, n, state + tables / n, sent + cards)
    if tables / m <= USABLE * f.machine.host_memory:
        yield Plan("embeddings", m, n, state, sent + 2 * rows / PCIE, how="on the hosts")


def divisors(one: int, other: int) -> list[int]:
    """Returns what divides both, from 1 on."""
    most = math.gcd(one, other)
    return [part for part in range(1, most + 1) if most % part == 0]


def _layouts(f: Facts, m: int, shape: Mapping[str, int]) -> Iterator[Plan]:
    """Tensor × pipeline × data, with sequence parallelism; the optimizer sharded (ZeRO-1)."""
    d, n = f.machine.devices, m * f.machine.devices
    for t in divisors(d, shape["heads"]):
        for p in range(1, min(n // t, shape["layers"]) + 1):
            if n % (t * p) == 0:
                if t * p > 1:
                    yield _layout(f, m, shape, t, p)
                for e in _expert_groups(f, n // (t * p)):
                    yield _layout(f, m, shape, t, p, e=e)


def _contexts(f: Facts, m: int, shape: Mapping[str, int]) -> Iterator[Plan]:
    """Also the positions of a sequence divided, and the experts over the same devices."""
    d, n = f.machine.devices, m * f.machine.devices
    for t in divisors(d, shape["heads"]):
        for p in divisors(n // t, n // t):
            for c in divisors(n // (t * p), n // (t * p))[1:]:
                if p <= shape["layers"] and c <= shape["sequence"]:
                    for e in (1, *_expert_groups(f, n // (t * p))):
                        yield _layout(f, m, shape, t, p, c, e)


def _expert_groups(f: Facts, ranks: int) -> list[int]:
    """Returns by how many devices the experts may be shared, if one has no room for them.

    Groups in which an expert has enough tokens at once; if there is none, the largest.
    """
    groups = divisors(ranks, f.model.experts)[1:]
    if sum(f.sizes) * f.model.expert_parameters <= f.usable * f.model.parameters:
        return []
    busy = [e for e in groups if _tokens_at_once(f) * e >= BUSY_TOKENS]
    return busy or groups[-1:]


def _tokens_at_once(f: Facts) -> float:
    """Returns the tokens of one example for each expert."""
    return (f.model.shape or {"sequence": 1})["sequence"] * f.model.chosen / f.model.experts


def _layout(
    f: Facts, m: int, shape: Mapping[str, int], t: int, p: int, c: int = 1, e: int = 1
) -> Plan:
    """Tensor t × pipeline p × context c × data; the experts of a layer on e of context × data."""
    d, b, n, (w, g, o) = f.machine.devices, f.data.batch, m * f.machine.devices, f.sizes
    layers, wide = shape["layers"], 2 * shape["sequence"] * shape["hidden"]  # bytes of an input
    cut, data, again = t * p, n // (t * p), int(f.model.recomputed)
    uneven = math.ceil(layers / p) * p / layers  # the longest stage
    bubble = (p - 1) / (cut * c * b)  # (p - 1) / micro-batches, of one example each
    expert = f.model.expert_parameters / f.model.parameters * (e > 1)
    # A machine sends what it holds of the gradients, and the inputs of the next stage.
    reduce = 0.0
    for share, parts in ((1 - expert, cut), (expert, cut * e)):
        held = 2 * g * share * (min(1, d / parts) if m > 1 else 1 / parts)
        reduce += f.ring(held, m, n // parts) if share and n > parts else 0.0
    link = min(f.machine.link, f.machine.network) if m > 1 and cut * c > d else f.machine.link
    inside = min(c, max(1, d // t)) / c  # of an example, in one machine
    sending = reduce + 2 * cut * c * b * wide * inside * (p > 1) / link
    # In all-reduces of a layer: inputs are gathered again backward, or all is done again.
    calls = t * c * b * layers  # on each device, of a layer of an example
    waiting = calls * (5 + again) * f.ring(2 * wide / c, 1, t) if t > 1 else 0.0
    why = ""
    if c > 1:
        ring, seconds, why = _context(f, m, shape, t, c)
        sending, waiting = sending + calls * seconds * ring, waiting + calls * seconds * (not ring)
    if e > 1:
        tokens = shape["sequence"] / (t * c)
        nbytes = expert_bytes(tokens, e, shape["hidden"], f.model.chosen)
        waiting += calls * (4 + 2 * again) * f.all_to_all(nbytes, m, e, t)
        why += (
            f" The experts have {bytes_text((w + g + o) * expert)} of state, and "
            f"{bytes_text(f.usable)} of a device are usable: {e:,} devices share them. Each expert "
            f"then has {_tokens_at_once(f) * e:,.0f} tokens at once; {BUSY_TOKENS:.0f} keep a GPU "
            "busy."
        )
    sizes = {"tensor": t, "pipeline": p, "context": c, "data": data // c}
    cuts = [f"{name} {size}" for name, size in sizes.items() if size > 1]
    if e > 1:
        cuts.append(f"experts on {e:,}")
    key = "tensor" if p == 1 else "pipeline" if t == 1 else "hybrid"
    key = "experts" if e > 1 else key if data == 1 else "hybrid"
    return Plan(
        "context" if c > 1 else key, m, n,
        ((w + g) * ((1 - expert) + expert / e) / cut + o / n) * uneven, sending, waiting=waiting,
        computing=uneven * (1 + bubble), divided_by=t * c, lockstep=True, how=" × ".join(cuts),
        why=why.strip(),
    )  # fmt: skip


def _context(f: Facts, m: int, shape: Mapping[str, int], t: int, c: int) -> tuple[bool, float, str]:
    """Whether it is ring attention, the seconds of a layer of an example, and why."""
    keys, head = shape.get("key_heads", shape["heads"]), shape["hidden"] // shape["heads"]
    heads, each, passes = shape["heads"] // t, max(keys, t) / t, 2 + int(f.model.recomputed)
    sequence, size = shape["sequence"], each * head
    ring = ring_bytes(sequence, c, size, passes)
    ulysses = ulysses_bytes(sequence, c, heads, each, head, passes)
    why = (
        f"One example keeps {bytes_text(f.model.activation_bytes / t)} with tensor {t}, and "
        f"{bytes_text(f.usable)} of a device are usable: context {c} divides it. "
    )
    if heads % c:
        why += f"Ulysses needs a multiple of {c} heads, and a tensor rank has {heads}."
    else:
        once = (ring_bytes(sequence, c, size, 1), ulysses_bytes(sequence, c, heads, each, head, 1))
        why += "Forward, a layer sends {} around a ring, {} in Ulysses.".format(
            *map(bytes_text, once)
        )
    around = goes_around(c, heads, each)
    if not around:
        return False, f.all_to_all(ulysses, m, c, t), why
    latency, seconds = LINKS["PCIe 3 x16"].latency or 0.0, ring / f.machine.link
    if m > 1 and t * c > f.machine.devices:  # the last device of a machine sends to the next
        latency = f.machine.network_latency
        seconds = max(seconds, t * ring / f.machine.network)
    return True, passes * c * latency + seconds, why


def _trials(f: Facts) -> Iterator[Way]:
    """A training on each device; what is left in the last round shares the devices."""
    n, one = f.machine.machines * f.machine.devices, cost(f, _alone(f))
    if f.trials == 1 or n == 1 or not one.fits:
        return
    full, left = divmod(f.trials, n)
    low, high, how = full / one.low, full / one.high, f"{f.trials:,} trainings"
    if left:
        few = n // left
        machines = math.ceil(few / f.machine.devices)
        nbytes = 2 * f.sizes[1] + few * f.data.batch * f.model.row_bytes
        reduce = f.reduce(nbytes, machines, few)
        last = cost(f, Plan("trials", machines, few, sum(f.sizes), reduce))
        low, high = low + 1 / max(one.low, last.low), high + 1 / max(one.high, last.high)
        how += f", {left:,} of them on {few:,} devices each" * (few > 1)
    power = (1 + f.machine.slowest) / 2
    yield replace(
        one, key="trials", devices=n, low=power * f.trials / low, high=power * f.trials / high,
        how=how, share=1.0,
    )  # fmt: skip
