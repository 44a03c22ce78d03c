"""Which kind of parallelism follows from a model, its data and a machine, and why not another.

>>> print(choose(Model(101_770), Data(60_000), Machine(16e9, devices=2)).choice)
Mirrored, one machine
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.arguments import number, whole
from labkit.choosing.choices import CHOICES, FRAMEWORKS, Choice
from labkit.choosing.facts import ENOUGH_SECONDS, Data, Facts, Machine, Model
from labkit.choosing.questions import FIRST, QUESTIONS
from labkit.kinds import Kind, LabError, bytes_text, modelled, ratio_text, seconds_text
from labkit.memory.step_memory import USABLE, Footprint
from labkit.memory.transformer_memory import fullest, transformer
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.table import Table

SHAPE = ("layers", "hidden", "heads", "sequence", "vocabulary")


def divide(shape: Mapping[str, int], machine: Machine) -> Footprint:
    """The fullest stage of a transformer in the smallest tensor × pipeline group that fits.

    Tensor groups stay inside a machine, and what is left is data parallel, with ZeRO-1, sequence
    parallelism and selective recomputation.
    """
    ranks = machine.devices * machine.machines
    if missing := [name for name in SHAPE if name not in shape]:
        raise LabError(f"The shape of a transformer also needs {', '.join(missing)}.")
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


KIND = modelled(
    "byte counts and link speeds, nine tenths of a device's memory taken as usable; "
    "nothing was timed"
)


@dataclass(frozen=True, repr=False)
class Decision(ShownAsTable):
    """The choice, the evidence that led to it, and what spoke against each other choice."""

    taken: Choice
    answers: dict[str, bool]
    reasons: tuple[str, ...]
    rejected: tuple[tuple[tuple[str, ...], str], ...]
    """Names of other choices, with the evidence against them."""
    speedup: tuple[float, float] | None
    """Over one device with the same batch: without overlap, and if all communication overlaps."""
    expected: str
    division: Footprint | None
    """Of a transformer whose layers are divided."""
    kind: Kind = KIND

    @property
    def choice(self) -> str:
        """The name of the choice."""
        return self.taken.name

    def picture(self) -> Picture:
        """The decision tree with the path that these facts took."""
        from labkit.views.decision_tree import decision_tree

        return decision_tree(QUESTIONS, CHOICES, self.answers)

    def table(self) -> Table:
        """The choice, its names, and the evidence for and against."""
        from labkit.views.table import Table

        one, called = self.taken, zip(FRAMEWORKS, self.taken.called, strict=True)
        divided = self.division and f"{self.division.scheme}: {bytes_text(self.division.total)}"
        rows = [
            ("choice", f"{self.choice}. {one.what}"),
            *((f"in {framework}", name or "none") for framework, name in called),
            ("taught in", f"lecture {one.lecture:02d}"),
            ("expected", self.expected),
            *([("division", f"{divided} on the fullest device")] if divided else []),
            *(("because", reason) for reason in self.reasons),
            *(("not", f"{'; '.join(names)}. {reason}") for names, reason in self.rejected),
        ]
        return Table((), rows, footer=str(self.kind), prose=True)


def choose(
    model: Model, data: Data, machine: Machine, *, enough: float = ENOUGH_SECONDS
) -> Decision:
    """Answer the questions from the first with these facts, and keep the evidence.

    A training that takes at most `enough` seconds on one device is not distributed.
    """
    for value, wanted in ((model, Model), (data, Data), (machine, Machine)):
        if not isinstance(value, wanted):
            raise LabError(f"choose(Model(...), Data(...), Machine(...)) is needed, got {value!r}.")
    number("examples", data.examples, at_least=1)
    number("epochs", data.epochs, above=0)
    number("enough", enough, at_least=0)
    number("host_memory", machine.host_memory, at_least=0)
    if model.step_seconds is not None:
        number("step_seconds", model.step_seconds, above=0)
    for name in ("device_memory", "link", "network"):
        number(name, getattr(machine, name), above=0)
    for name in ("devices", "machines"):
        whole(name, getattr(machine, name), at_least=1)
    whole("sites", data.sites, at_least=1)
    facts = Facts(model, data, machine, enough)
    answers, reasons, rejected, key = {}, [], [], FIRST
    while key in QUESTIONS:
        question = QUESTIONS[key]
        answers[key], evidence = question.answer(facts)
        reasons.append(evidence)
        key, other = (question.yes, question.no)[:: 1 if answers[key] else -1]
        rejected.append((tuple(_choices_below(other)), evidence))
    name = CHOICES[key].name  # "One device" has three ways that lead to it
    left = ((tuple(one for one in names if one != name), why) for names, why in rejected)
    against = tuple((tuple(dict.fromkeys(names)), why) for names, why in left if names)
    divided = model.shape is not None and key in ("hybrid", "tensor", "pipeline")
    return Decision(
        CHOICES[key], answers, tuple(reasons), against, *_gain(key, facts),
        divide(model.shape or {}, machine) if divided else None,
    )  # fmt: skip


def _gain(key: str, f: Facts) -> tuple[tuple[float, float] | None, str]:
    """The modelled speed-up of a choice, and the same in words."""
    if key == "one_device":
        return (1.0, 1.0), "no speed-up" + (f"; {seconds_text(f.alone)} in all" if f.alone else "")
    if key == "pipeline":
        gain = f.devices * f.data.batch / (f.data.batch + f.devices - 1)
        what = f"one example a micro-batch, {f.data.batch:,} of them, without communication"
        return (gain, gain), f"{ratio_text(gain)} of one device ({what})"
    f = f.one_machine if key == "mirrored" else f
    seconds = {
        "mirrored": f.all_reduce,
        "multi_worker": f.all_reduce,
        "sharded": f.link_seconds(f.sharding_bytes),
        "parameter_server": f.one_server,
    }
    speedup = f.speedup(seconds[key]) if key in seconds else None
    if speedup is None:
        return None, "not modelled: measure the time of a step, before and after"
    low, high = map(ratio_text, speedup)
    server = "; one server sends and receives for all" if key == "parameter_server" else ""
    return speedup, (
        f"{low} of one device without overlap, {high} if all communication overlaps "
        f"({seconds_text(seconds[key])} per step{server}), each device with a batch of its own"
    )


def _choices_below(key: str) -> Iterator[str]:
    """The names of all choices that a question leads to; of a choice, its own."""
    if key in CHOICES:
        yield CHOICES[key].name
    else:
        for after in (QUESTIONS[key].yes, QUESTIONS[key].no):
            yield from _choices_below(after)
