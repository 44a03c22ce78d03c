"""The kind of parallelism for a model, its data and a machine, and why not another.

>>> print(choose(Model(101_770), Data(60_000), Machine(16e9, devices=2)).choice)
Mirrored, one machine
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from labkit.choosing.choices import CHOICES, FASTEST, FRAMEWORKS, QUESTIONS, Choice
from labkit.choosing.facts import ENOUGH_SECONDS, WORTH, Data, Facts, Machine, Model, checked_shape
from labkit.choosing.ways import AS_FAST, CUT, LAST, NEW_PROGRAM, Way, divisors, ways
from labkit.kinds import Kind, LabError, bytes_text, modelled, seconds_text
from labkit.memory.step_memory import USABLE, Footprint
from labkit.memory.transformer_memory import fullest, transformer
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.table import Table

KIND = modelled(
    "byte counts and link speeds, nine tenths of a device's memory taken as usable; "
    "nothing was timed"
)


def divide(shape: Mapping[str, int], machine: Machine) -> Footprint:
    """Returns the fullest stage of a transformer in the smallest tensor × pipeline group that fits.

    Tensor groups stay inside a machine, and what is left is data parallel, with ZeRO-1, sequence
    parallelism and selective recomputation.
    """
    ranks, shape = machine.devices * machine.machines, checked_shape(shape)
    chosen: dict[str, Any] = {"zero": 1, "sequence_parallel": True, "recompute": "selective"}
    keys = shape.get("key_heads", shape["heads"])
    sizes = [(t * p, -t, p) for t in divisors(machine.devices, shape["heads"])
             if not max(keys, t) % min(keys, t)
             for p in divisors(ranks // t, shape["layers"])]  # fmt: skip
    for group, _, pipeline in sorted(sizes):
        chosen |= {"tensor": group // pipeline, "pipeline": pipeline, "data": ranks // group}
        step = fullest(transformer(**{**chosen, **shape}))
        if step.total <= USABLE * machine.device_memory:
            return step
    raise LabError(f"No tensor × pipeline × data of {ranks:,} devices fits: use more devices.")


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
    """Of each other way why it was not chosen, and its numbers."""
    expected: str
    then: Decision | None = None
    """The decision at each place, or with 16-bit numbers and recomputation."""
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
        """Returns the decision tree with the path that these facts took."""
        from labkit.choosing.tree import decision_tree

        return decision_tree(self.answers, self.choice)

    def table(self) -> Table:
        """Returns the choice, its names, the evidence, and all other ways with their times."""
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
    return _decided(Facts(model, data, machine, trials, enough, worth))


def _decided(f: Facts) -> Decision:
    """Returns the choice at which the answers end that the facts give to QUESTIONS."""
    evidence, answers, reasons, key = _Evidence(f), dict[str, bool](), [], "tied"
    while key in QUESTIONS:
        answers[key], reason = getattr(evidence, key)()
        reasons.append(reason)
        key = QUESTIONS[key].yes if answers[key] else QUESTIONS[key].no

    way, then = None, None
    if "site" in answers:
        then = evidence.at_a_site
    elif key == "shorter":
        then = evidence.shortened
    elif key != "nothing":
        ends = {"spatial": "divided", FASTEST: "best", "parameter_server": "stale_way"}
        way = getattr(evidence, ends.get(key, "alone"))
        key = way.key
    if then:
        expected, others = then.expected, then.others
    else:
        expected = way.text(f) if way else "not modelled"
        others = tuple(
            (evidence.verdict(one, way), one.text(f)) for one in evidence.ways if one != way
        )
    return Decision(CHOICES[key], answers, tuple(reasons), way, others, expected, then)


class _Evidence:
    """Answers to the questions of QUESTIONS, by their keys, each with its evidence."""

    def __init__(self, f: Facts) -> None:
        self.f, self.ways = f, ways(f)
        self.fit = [way for way in self.ways if way.fits and way.key not in LAST]
        self.alone = next(way for way in self.ways if way.key in ("one_device", "accumulate"))
        self.stale_way = self._first("parameter_server", self.ways)
        self.room = f"{bytes_text(f.usable)} of a device are usable"

    def _first(self, key: str, ways: Sequence[Way]) -> Way:
        """Returns the first way of this kind, or else that of one device."""
        return next((way for way in ways if way.key == key), self.alone)

    @cached_property
    def at_a_site(self) -> Decision:
        return _decided(self.f.at_a_site)

    @cached_property
    def shortened(self) -> Decision | None:
        return None if self.f.shortened == self.f else _decided(self.f.shortened)

    @cached_property
    def divided(self) -> Way:
        return self._first("spatial", ways(self.f.shortened))

    @cached_property
    def best(self) -> Way:
        """Of the ways that pay and are about as fast as the fastest, the simplest."""
        paying = [way for way in self.fit if self.pays(way)]
        fast = (1 - AS_FAST) * max(way.score for way in paying)
        return next(way for way in paying if way.score >= fast)

    def tied(self) -> tuple[bool, str]:
        data, may = self.f.data, "may" if self.f.data.may_leave_site else "may not"
        evidence = f"Places that hold data: {data.sites:,}; the data {may} be moved."
        return data.sites > 1 and not data.may_leave_site, evidence

    def site(self) -> tuple[bool, str]:
        site, sent = self.at_a_site, self.f.sizes[0]
        evidence = (
            f"At each place: {f'{site.expected}.' if site.way else site.reasons[-1]} A round of "
            f"all weights sends {bytes_text(sent)} to each place and back: "
            f"{seconds_text(2 * sent / self.f.machine.network)}."
        )
        return site.choice != CHOICES["nothing"].name, evidence

    def enough(self) -> tuple[bool, str]:
        seconds, alone = self.f.alone, self.alone
        if not alone.fits:
            return False, f"{alone.name} needs {bytes_text(alone.held)}; {self.room}."
        if seconds is None:
            return False, "The time of a step is not known. Measure it on one device (lecture 11)."
        short = f"{seconds_text(self.f.enough)} would be short enough"
        return seconds <= self.f.enough, f"One device takes {seconds_text(seconds)}; {short}."

    def fits(self) -> tuple[bool, str]:
        least = min((one for one in self.ways if one.key not in LAST), key=lambda one: one.held)
        evidence = f"{len(self.fit)} of {len(self.ways)} ways fit. {least.name} needs least: "
        return bool(self.fit), f"{evidence}{bytes_text(least.held)}; {self.room}."

    def short(self) -> tuple[bool, str]:
        if (then := self.shortened) is None:
            return False, "It has 16-bit numbers and recomputation already."
        kept = (bytes_text(f.model.activation_bytes) for f in (self.f, self.f.shortened))
        evidence = "An example keeps {} of activations, with 16 bits and recomputation {}."
        able = then.way is not None and then.way.key not in LAST
        return able, evidence.format(*kept)

    def pieces(self) -> tuple[bool, str]:
        f, divided = self.f, self.divided
        evidence = f"{divided.name} needs {bytes_text(divided.held)}; {self.room}."
        if (state := sum(f.sizes)) > f.usable * f.machine.devices * f.machine.machines:
            evidence = f"The state is {bytes_text(state)}; {self.room}."
            if not f.model.embeddings:
                frozen, four = map(bytes_text, (2 * f.model.parameters, f.model.parameters / 2))
                evidence += f" With LoRA the frozen weights take {frozen} in 16 bits, {four} in 4."
        return divided.fits, evidence

    def worth(self) -> tuple[bool, str]:
        best = self.best
        evidence = "Communication is not counted. " if self.f.alone is None else ""
        evidence += f"{best.name}: {best.gain}." + f" {best.why}" * bool(best.why)
        if more := [way for way in self.fit if way != best]:
            rival = max(more, key=lambda way: way.middle)
            evidence += f" {rival.name}: {rival.gain}; {self.verdict(rival, best)}."
        return best != self.alone, evidence

    def stale(self) -> tuple[bool, str]:
        way = self.stale_way
        if way == self.alone:
            return False, "There are no machines that could go on without it."
        lost = "a lost worker stops no other, but gradients are stale"
        return way.fits and self.pays(way), f"{way.name}: {way.gain}; {lost}."

    def worth_of_one(self, way: Way) -> float:
        """Returns a device's worth beside one of the fewest that can do it, without overlap."""
        fewest = min(self.fit, key=lambda one: (one.devices, -one.low))
        return way.low / way.devices / (fewest.low / fewest.devices)

    def pays(self, way: Way) -> bool:
        few = way.devices == min(one.devices for one in self.fit)
        return few or self.worth_of_one(way) >= self.f.worth

    def verdict(self, way: Way, chosen: Way | None) -> str:
        """Returns why this way was not chosen."""
        if not way.fits:
            return "too large"
        if chosen is None or way.key in LAST:
            return "only where nothing else helps"
        if not self.pays(way):
            alone = min(one.devices for one in self.fit) == 1
            return (
                f"each device is worth {100 * self.worth_of_one(way):.0f} % of one "
                f"{'alone' if alone else 'of the fewest that can do it'}; "
                f"{100 * self.f.worth:.0f} % is asked"
            )
        if way.middle < (1 - AS_FAST) * chosen.middle:
            return "slower"
        if way.key in CUT and way.middle > chosen.middle:
            return f"not {100 * NEW_PROGRAM:.0f} % faster, which a new program must be"
        return "about as fast, and less simple"
