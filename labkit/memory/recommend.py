"""Which kind of parallelism follows from a model, its data and a machine, and why not another.

>>> print(choose(Model(101_770), Data(60_000), Machine(16e9, devices=2)).choice)
Mirrored, one machine
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.arguments import number, whole
from labkit.kinds import Kind, LabError, bytes_text, count_text, modelled, seconds_text
from labkit.memory.footprint import Footprint, footprint

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["CHOICES", "QUESTIONS", "Data", "Decision", "Facts", "Machine", "Model", "choose"]

# Two rules of thumb of this course. A tenth of a device's memory stays with the framework. A step
# of a model that needs sharding takes seconds: a second of communication can overlap with it.
USABLE = 0.9
SHARDING_SECONDS = 1.0


@dataclass(frozen=True)
class Model:
    """A model and the numbers it trains with; `activation_bytes` are per example."""

    parameters: float
    activation_bytes: float = 0
    convention: str = "float32 adam"


@dataclass(frozen=True)
class Data:
    """Examples, their size, how many of them one device takes per step, and where they may go."""

    examples: float
    example_bytes: float = 0
    batch: int = 32
    sites: int = 1
    may_leave_site: bool = True


@dataclass(frozen=True)
class Machine:
    """Devices a machine, their memory in bytes, and the links between them in bytes per second.

    `link` joins the devices of one machine, `network` joins the machines. `equal` says that all
    devices are alike and stay up.
    """

    device_memory: float
    devices: int = 1
    machines: int = 1
    link: float = 16e9
    network: float = 1.25e9
    equal: bool = True


@dataclass(frozen=True)
class Facts:
    """The three together, and the numbers that the questions need."""

    model: Model
    data: Data
    machine: Machine

    @property
    def devices(self) -> int:
        """Devices of all machines."""
        return self.machine.devices * self.machine.machines

    @property
    def usable(self) -> int:
        """Bytes of one device that a training step may take."""
        return int(USABLE * self.machine.device_memory)

    @property
    def slowest_link(self) -> float:
        """Bytes per second of the slowest link that a step must cross."""
        link, network = self.machine.link, self.machine.network
        return link if self.machine.machines == 1 else min(link, network)

    def step(self, batch: int | None = None) -> Footprint:
        """The footprint of a data-parallel step with `batch` examples per device."""
        return footprint(
            self.model.parameters,
            batch=self.data.batch if batch is None else batch,
            activation_bytes=self.model.activation_bytes,
            example_bytes=self.data.example_bytes,
            convention=self.model.convention,
        )

    def sharded(self) -> Footprint:
        """One example, with the state sharded over all devices."""
        return self.step(1).sharded(self.devices)

    def layers_split(self) -> Footprint:
        """As `sharded`, and each layer's activations split inside a machine."""
        return self.sharded().sharded(self.machine.devices, ("activations",))

    @property
    def sharding_bytes(self) -> int:
        """What stage 3 of ZeRO moves per step: weights gathered twice, gradients reduced once."""
        return 2 * self.step()["weights"] + self.step()["gradients"]

    def link_seconds(self, count: float) -> float:
        """(n-1)/n of these bytes over the slowest link, without latency."""
        return (self.devices - 1) / self.devices * count / self.slowest_link


Answer = Callable[[Facts], tuple[bool, str]]


@dataclass(frozen=True)
class Question:
    """A yes-or-no question: its answer with the evidence, and what follows after yes and no."""

    text: str
    answer: Answer
    yes: str
    no: str


@dataclass(frozen=True)
class Choice:
    """A kind of training: its name, what it does, its name in TensorFlow, the lecture on it."""

    name: str
    what: str
    strategy: str
    lecture: int | None = None


def _tied(f: Facts) -> tuple[bool, str]:
    may = "may" if f.data.may_leave_site else "may not"
    evidence = f"Places that hold data: {f.data.sites}; the data {may} be moved to other devices."
    return f.data.sites > 1 and not f.data.may_leave_site, evidence


def _fits(words: str, step: Callable[[Facts], Footprint]) -> Answer:
    def answer(f: Facts) -> tuple[bool, str]:
        needed, memory = step(f).total, bytes_text(f.machine.device_memory)
        verdict = "it fits" if needed <= f.usable else "too much"
        return needed <= f.usable, (
            f"{words.format(f=f)} {bytes_text(needed)}; usable are {bytes_text(f.usable)} of a "
            f"device's {memory}: {verdict}."
        )

    return answer


def _several(f: Facts) -> tuple[bool, str]:
    alone, together = (
        count_text(math.ceil(f.data.examples / (f.data.batch * n))) for n in (1, f.devices)
    )
    if f.devices == 1:
        return False, f"There is 1 device: {alone} steps through the data."
    return True, (
        f"There are {f.devices:,} devices: together they take {together} steps through the data, "
        f"one alone {alone}."
    )


def _equal(f: Facts) -> tuple[bool, str]:
    if f.machine.equal:
        return True, "The devices are alike and stay up, so there are no stragglers."
    return False, "The devices differ or come and go; a synchronous step waits for the slowest."


def _machines(f: Facts) -> tuple[bool, str]:
    seconds = seconds_text(f.link_seconds(2 * f.step()["gradients"]))
    return f.machine.machines > 1, (
        f"Machines: {f.machine.machines:,}, with {f.devices:,} devices in all. An all-reduce of "
        f"the gradients takes about {seconds} per step over the slowest link "
        f"({bytes_text(f.slowest_link)}/s)."
    )


def _gather(f: Facts) -> tuple[bool, str]:
    seconds = f.link_seconds(f.sharding_bytes)
    return seconds <= SHARDING_SECONDS, (
        "Sharded training gathers the weights twice and reduces the gradients once, "
        f"{bytes_text(f.sharding_bytes)} per step; the slowest link "
        f"({bytes_text(f.slowest_link)}/s) needs {seconds_text(seconds)} for it."
    )


FIRST = "tied"
# The question, the answer, and where yes and no lead.
QUESTIONS = {
    "tied": Question("Is the data tied to several places?", _tied, "federated", "fits"),
    "fits": Question(
        "Does one training step fit on one device?",
        _fits("A step with {f.data.batch:,} examples per device holds", Facts.step),
        "several",
        "smaller",
    ),
    "several": Question("Is there more than one device?", _several, "equal", "one_device"),
    "equal": Question(
        "Are the devices equal and reliable?", _equal, "machines", "parameter_server"
    ),
    "machines": Question(
        "Are they in more than one machine?", _machines, "multi_worker", "mirrored"
    ),
    "smaller": Question(
        "Does it fit with a smaller batch?",
        _fits("With a single example it holds", lambda f: f.step(1)),
        "accumulate",
        "layers",
    ),
    "layers": Question(
        "Does it fit when the model and its layers are split over all devices?",
        _fits(
            "Split over all devices ({f.devices:,}), one example holds on each", Facts.layers_split
        ),
        "shards",
        "nothing",
    ),
    "shards": Question(
        "Does it fit with whole layers, and only the state sharded?",
        _fits(
            "With weights, gradients and optimizer state sharded over {f.devices:,} devices, "
            "each holds",
            Facts.sharded,
        ),
        "gather",
        "tensor",
    ),
    "gather": Question(
        f"Can the slowest link carry 2 × weights and gradients in {SHARDING_SECONDS:g} s?",
        _gather,
        "sharded",
        "pipeline",
    ),
}

CHOICES = {
    "federated": Choice(
        "Federated learning",
        "Each place trains on its own data and sends only updates of the weights.",
        "none in tf.distribute: Flower or TensorFlow Federated",
    ),
    "one_device": Choice(
        "One device",
        "No communication at all. Make this fast before you add devices.",
        "none needed, or tf.distribute.OneDeviceStrategy",
        2,
    ),
    "parameter_server": Choice(
        "Parameter server",
        "Workers fetch weights and send gradients at their own pace, without waiting.",
        "tf.distribute.ParameterServerStrategy",
        15,
    ),
    "mirrored": Choice(
        "Mirrored, one machine",
        "Every device holds the whole model, takes its share of the batch, averages gradients.",
        "tf.distribute.MirroredStrategy",
        3,
    ),
    "multi_worker": Choice(
        "Mirrored, several machines",
        "As mirrored on one machine; the all-reduce also crosses the network.",
        "tf.distribute.MultiWorkerMirroredStrategy",
        14,
    ),
    "accumulate": Choice(
        "Smaller batch, accumulated",
        "Several small steps add up their gradients before one update; works on any device count.",
        "any strategy, in a loop of your own; on one device Keras has gradient_accumulation_steps",
        7,
    ),
    "nothing": Choice(
        "More memory first",
        "Use more devices, shorter numbers, recomputed activations, or a smaller model.",
        "none",
    ),
    "tensor": Choice(
        "Tensor parallel",
        "Each layer is cut inside; devices exchange results within every layer.",
        "tf.experimental.dtensor, or a framework made for it",
    ),
    "sharded": Choice(
        "Sharded data parallel (ZeRO)",
        "Data parallel; each device keeps a share of the state and gathers weights when needed.",
        "none in tf.distribute: DeepSpeed ZeRO or PyTorch FSDP",
    ),
    "pipeline": Choice(
        "Pipeline parallel",
        "Each device keeps some layers; micro-batches flow through, only activations are sent.",
        "none in tf.distribute: tf.device by hand, or a framework made for it",
    ),
}


KIND = modelled(
    "byte counts and link speeds, nine tenths of a device's memory taken as usable; "
    "nothing was timed"
)


@dataclass(frozen=True, repr=False)
class Decision:
    """The choice, the evidence that led to it, and what spoke against each other choice."""

    taken: Choice
    answers: dict[str, bool]
    reasons: tuple[str, ...]
    rejected: tuple[tuple[tuple[str, ...], str], ...]
    """Names of other choices, with the evidence against them."""
    kind: Kind = KIND

    @property
    def choice(self) -> str:
        """The name of the choice."""
        return self.taken.name

    def picture(self) -> Picture:
        """The decision tree with the path that these facts took."""
        from labkit.views.decision_tree import decision_tree

        return decision_tree(QUESTIONS, CHOICES, self.answers)

    def _rows(self) -> list[tuple[str, str]]:
        lecture = self.taken.lecture
        return [
            ("choice", f"{self.choice}. {self.taken.what}"),
            ("in TensorFlow", self.taken.strategy),
            ("taught in", "a later lecture" if lecture is None else f"lecture {lecture:02d}"),
            *(("because", reason) for reason in self.reasons),
            *((f"not {'; '.join(names)}", reason) for names, reason in self.rejected),
        ]

    def __repr__(self) -> str:
        lines = (f"{what}: {words}" for what, words in self._rows())
        return "\n".join([*lines, str(self.kind)])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        html = table((), self._rows(), footer=str(self.kind), prose=True)
        return {"text/plain": repr(self), "text/html": html}


def choose(model: Model, data: Data, machine: Machine) -> Decision:
    """Answer the questions from the first with these facts, and keep the evidence."""
    for value, wanted in ((model, Model), (data, Data), (machine, Machine)):
        if not isinstance(value, wanted):
            raise LabError(f"choose(Model(...), Data(...), Machine(...)) is needed, got {value!r}.")
    number("examples", data.examples, at_least=1)
    for name in ("device_memory", "link", "network"):
        number(name, getattr(machine, name), above=0)
    for name in ("devices", "machines"):
        whole(name, getattr(machine, name), at_least=1)
    facts = Facts(model, data, machine)
    answers, reasons, rejected, key = {}, [], [], FIRST
    while key in QUESTIONS:
        question = QUESTIONS[key]
        answers[key], evidence = question.answer(facts)
        reasons.append(evidence)
        key, other = (question.yes, question.no)[:: 1 if answers[key] else -1]
        rejected.append((tuple(_choices_below(other)), evidence))
    return Decision(CHOICES[key], answers, tuple(reasons), tuple(rejected))


def _choices_below(key: str) -> Iterator[str]:
    """The names of all choices that a question leads to; of a choice, its own."""
    if key in CHOICES:
        yield CHOICES[key].name
    else:
        for after in (QUESTIONS[key].yes, QUESTIONS[key].no):
            yield from _choices_below(after)
