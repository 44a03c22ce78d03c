"""Which kind of parallelism follows from a model, its data and a machine, and why not another.

>>> print(choose(Model(101_770), Data(60_000), Machine(16e9, devices=2)).choice)
Mirrored, one machine
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.arguments import number, one_of, whole
from labkit.choosing.choices import CHOICES, COMPARED, FRAMEWORKS, QUESTIONS, Choice
from labkit.choosing.facts import ENOUGH_SECONDS, WORTH, Data, Facts, Machine, Model
from labkit.choosing.ways import AS_FAST, CUT, LAST, NEW_PROGRAM, Way, ways
from labkit.kinds import (
    Kind,
    LabError,
    bytes_text,
    modelled,
    seconds_text,
)
from labkit.memory.step_memory import CONVENTIONS, USABLE, Footprint
from labkit.memory.transformer_memory import fullest, transformer
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.table import Table

SHAPE = ("layers", "hidden", "heads", "sequence", "vocabulary")
KIND = modelled(
    "byte counts and link speeds, nine tenths of a device's memory taken as usable; "
    "nothing was timed"
)


def divide(shape: Mapping[str, int], machine: Machine) -> Footprint:
    """The fullest stage of a transformer in the smallest tensor × pipeline group that fits.

    Tensor groups stay inside a machine, and what is left is data parallel, with ZeRO-1, sequence
    parallelism and selective recomputation.
    """
    ranks = machine.devices * machine.machines
    _check_shape(shape)
    chosen: dict[str, Any] = {"zero": 1, "sequence_parallel": True, "recompute": "selective"}
    for group in (one for one in range(1, ranks + 1) if ranks % one == 0):
        for tensor in range(machine.devices, 0, -1):
            pipeline, rest = divmod(group, tensor)
            whole_parts = not (rest or machine.devices % tensor or shape["heads"] % tensor)
            if whole_parts and shape["layers"] % pipeline == 0:
                chosen |= {"tensor": tensor, "pipeline": pipeline, "data": ranks // group}
                step = fullest(transformer(**{**chosen, **shape}))
                if step.total <= USABLE * machine.device_memory:
                    return step
    raise LabError(f"No tensor × pipeline × data of {ranks:,} devices fits: use more devices.")


def _check_shape(shape: Mapping[str, int]) -> None:
    if missing := [name for name in SHAPE if name not in shape]:
        raise LabError(f"The shape of a transformer also needs {', '.join(missing)}.")


@dataclass(frozen=True, repr=False)
class Decision(ShownAsTable):
    """The choice, the evidence that led to it, and the numbers of every other way."""

    taken: Choice
    answers: dict[str, bool]
    reasons: tuple[str, ...]
    """The evidence of each answer; the last two say why in short."""
    way: Way | None
    """The way that was chosen, in numbers."""
    others: tuple[tuple[str, str], ...]
    """Why not each other way, and its numbers."""
    expected: str
    then: Decision | None = None
    """What follows at each place, or with 16-bit numbers and recomputation."""
    kind: Kind = KIND

    @property
    def choice(self) -> str:
        """The name of the choice."""
        return self.taken.name

    @property
    def speedup(self) -> tuple[float, float] | None:
        """Over one device with the same batch: without overlap, and if all that can overlaps."""
        return (self.way.low, self.way.high) if self.way else None

    def picture(self) -> Picture:
        """The decision tree with the path that these facts took."""
        from labkit.views.decision_tree import decision_tree

        return decision_tree(QUESTIONS, CHOICES, COMPARED, self.answers, self.choice)

    def table(self) -> Table:
        """The choice, its names, the evidence, and all other ways with their times."""
        from labkit.views.table import Table

        one, called = self.taken, zip(FRAMEWORKS, self.taken.called, strict=True)
        rows = [
            ("choice", f"{self.choice}. {one.what}"),
            *([("then", self.then.choice)] if self.then and self.then.way else []),
            *((f"in {framework}", name or "none") for framework, name in called),
            ("taught in", f"lecture {one.lecture:02d}"),
            ("expected", self.expected),
            *(("because", reason) for reason in self.reasons),
            *(("not", f"{text}: {why}") for why, text in self.others),
        ]
        return Table((), rows, footer=str(self.kind), prose=True)


def choose(
    model: Model, data: Data, machine: Machine, *, trials: int = 1,
    enough: float = ENOUGH_SECONDS, worth: float = WORTH,
) -> Decision:  # fmt: skip
    """Compare all ways by their modelled time, take the fastest, and keep the evidence.

    A training that takes at most `enough` seconds on one device is not distributed. `trials` are
    independent trainings. `worth` is the share of one device that
    each must be worth on average.
    """
    for value, wanted in ((model, Model), (data, Data), (machine, Machine)):
        if not isinstance(value, wanted):
            raise LabError(f"choose(Model(...), Data(...), Machine(...)) is needed, got {value!r}.")
    one_of("convention", model.convention, CONVENTIONS)
    if model.shape is not None:
        _check_shape(model.shape)
    given = {**vars(model), **vars(data), **vars(machine), "trials": trials}
    for name in ("batch", "sites", "devices", "machines", "trials"):
        whole(name, given[name], at_least=1)
    for name in ("parameters", "examples", "epochs", "device_memory", "link", "network"):
        number(name, given[name], above=0)
    number("slowest", machine.slowest, above=0, at_most=1)
    if model.step_seconds is not None:
        number("step_seconds", model.step_seconds, above=0)
    return _decided(Facts(model, data, machine, trials, enough, worth))


def _decided(f: Facts) -> Decision:
    """Asks the questions of QUESTIONS in turn; each answer has its evidence."""
    found, answers, reasons, data = ways(f), {}, [], f.data
    fit = [way for way in found if way.fits and way.key not in LAST]
    alone = next(way for way in found if way.key in ("one_device", "accumulate"))
    stale = next((way for way in found if way.key == "parameter_server"), alone)
    room = f"{bytes_text(f.usable)} of a device are usable"

    def asked(key: str, answer: bool, evidence: str) -> bool:
        answers[key] = answer
        reasons.append(evidence)
        return answer

    def decided(way: Way | str, then: Decision | None = None) -> Decision:
        key, taken = (way, None) if isinstance(way, str) else (way.key, way)
        expected = taken.text(f) if taken else then.expected if then else "not modelled"
        others = then.others if then else tuple(
            (_verdict(f, fit, one, taken), one.text(f)) for one in found if one != taken
        )  # fmt: skip
        return Decision(CHOICES[key], answers, tuple(reasons), taken, others, expected, then)

    may = "may" if data.may_leave_site else "may not"
    evidence = f"Places that hold data: {data.sites:,}; the data {may} be moved."
    if asked("tied", data.sites > 1 and not data.may_leave_site, evidence):
        site, sent = _decided(f.at_a_site), f.sizes[0]
        found_there = f"{site.expected}." if site.way else site.reasons[-1]
        evidence = (
            f"At each place: {found_there} A round of all weights sends {bytes_text(sent)} to "
            f"each place and back: {seconds_text(2 * sent / f.machine.network)}."
        )
        fits = asked("site", site.choice != CHOICES["nothing"].name, evidence)
        return decided("federated" if fits else "nothing", site)

    evidence = f"{alone.name} needs {bytes_text(alone.held)}; {room}."
    if alone.fits and f.alone is None:
        evidence = "The time of a step is not known. Measure it on one device (lecture 02)."
    elif alone.fits and f.alone is not None:
        limit = seconds_text(f.enough)
        evidence = f"One device takes {seconds_text(f.alone)}; {limit} would be short enough."
    if asked("enough", alone.fits and f.alone is not None and f.alone <= f.enough, evidence):
        return decided(alone)

    least = min((way for way in found if way.key not in LAST), key=lambda way: way.held)
    evidence = f"{len(fit)} of {len(found)} ways fit. {least.name} needs least: "
    evidence += f"{bytes_text(least.held)}; {room}."
    if not asked("fits", bool(fit), evidence):
        short = f.shortened
        kept = (bytes_text(one.model.activation_bytes) for one in (f, short))
        evidence = "An example keeps {} of activations, with 16 bits and recomputation {}."
        evidence = evidence if short != f else "It has 16-bit numbers and recomputation already."
        then = _decided(short) if short != f else None
        able = bool(then and then.way and then.way.key not in LAST)
        if asked("short", able, evidence.format(*kept)):
            return decided("shorter", then)
        divided = next((way for way in ways(short) if way.key == "spatial"), alone)
        evidence = f"{divided.name} needs {bytes_text(divided.held)}; {room}."
        if sum(f.sizes) > f.usable * f.machine.devices * f.machine.machines:
            sizes = (sum(f.sizes), 2 * f.model.parameters, f.model.parameters / 2)
            lora = " With LoRA the frozen weights take {} in 16 bits, {} in 4."
            evidence = "The state is {}; {}." + lora * (not f.model.embeddings)
            state, *frozen = map(bytes_text, sizes)
            evidence = evidence.format(state, room, *frozen)
        return decided(divided if asked("pieces", divided.fits, evidence) else "nothing")

    paying = [way for way in fit if _pays(f, fit, way)]
    fast = (1 - AS_FAST) * max(way.score for way in paying)
    best = next(way for way in paying if way.score >= fast)
    evidence = "Communication is not counted. " if f.alone is None else ""
    evidence += f"{best.name}: {best.gain}."
    if more := [way for way in fit if way != best]:
        rival = max(more, key=lambda way: way.middle)
        evidence += f" {rival.name}: {rival.gain}; {_verdict(f, fit, rival, best)}."
    if asked("worth", best != alone, evidence):
        return decided(best)
    waits = f"{stale.name}: {stale.gain}; a lost worker stops no other, but gradients are stale."
    waits = waits if stale != alone else "There are no machines that could go on without it."
    able = stale != alone and stale.fits and _pays(f, fit, stale)
    return decided(stale if asked("stale", able, waits) else alone)


def _worth(fit: Sequence[Way], way: Way) -> float:
    """What one of its devices is worth, beside one of the fewest that can do it; no overlap."""
    fewest = min(fit, key=lambda one: (one.devices, -one.low))
    return way.low / way.devices / (fewest.low / fewest.devices)


def _pays(f: Facts, fit: Sequence[Way], way: Way) -> bool:
    return way.devices == min(one.devices for one in fit) or _worth(fit, way) >= f.worth


def _verdict(f: Facts, fit: Sequence[Way], way: Way, chosen: Way | None) -> str:
    """Why not this one."""
    if not way.fits:
        return "too large"
    if chosen is None or way.key in LAST:
        return "only where nothing else helps"
    if not _pays(f, fit, way):
        alone = min(one.devices for one in fit) == 1
        return (
            f"each device is worth {_worth(fit, way):.0%} of one "
            f"{'alone' if alone else 'of the fewest that can do it'}; {f.worth:.0%} is asked"
        )
    if way.middle < (1 - AS_FAST) * chosen.middle:
        return "slower"
    if way.key in CUT and way.middle > chosen.middle:
        return f"not {NEW_PROGRAM:.0%} faster, which a new program must be"
    return "about as fast, and less simple"
