"""Which kind of parallelism follows from a model, its data and a machine, and why not another.

>>> print(choose(Model(101_770), Data(60_000), Machine(16e9, devices=2)).choice)
Mirrored, one machine
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit.arguments import number, whole
from labkit.kinds import Kind, LabError, bytes_text, count_text, modelled, ratio_text, seconds_text
from labkit.known_hardware import LINKS
from labkit.memory.footprint import USABLE, Footprint, footprint
from labkit.memory.transformer import fullest, transformer

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.table import Table

# Rules of thumb of this course. A training that is done within an hour needs no second device. Data
# parallelism pays if devices compute for at least half of the time. A step of a model that needs
# sharding takes seconds: a second of communication can overlap with it.
ENOUGH_SECONDS = 3600.0
PAYS = 0.5
SHARDING_SECONDS = 1.0
SHAPE = ("layers", "hidden", "heads", "sequence", "vocabulary")


@dataclass(frozen=True)
class Model:
    """A model and the numbers it trains with; `activation_bytes` are per example.

    `step_seconds` is the time in which one device computes a step, as you measured it. `shape` has
    the layers, hidden, heads, sequence and vocabulary of a transformer.
    """

    parameters: float
    activation_bytes: float = 0
    convention: str = "float32 adam"
    step_seconds: float | None = None
    shape: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Data:
    """Examples, their size, how many of them one device takes per step, and where they may go."""

    examples: float
    example_bytes: float = 0
    batch: int = 32
    sites: int = 1
    may_leave_site: bool = True
    epochs: float = 1


@dataclass(frozen=True)
class Machine:
    """Devices a machine, their memory in bytes, and the links between them in bytes per second.

    `link` joins the devices of one machine; `network` is what a machine sends to others, over all
    its cards. `equal` says that all devices are alike and stay up. `host_memory` is that of one
    machine, beside its devices.
    """

    device_memory: float
    devices: int = 1
    machines: int = 1
    link: float = 16e9
    network: float = 1.25e9
    equal: bool = True
    host_memory: float = 0


@dataclass(frozen=True)
class Facts:
    """The three together, and the numbers that the questions need."""

    model: Model
    data: Data
    machine: Machine
    enough: float = ENOUGH_SECONDS

    @property
    def one_machine(self) -> Facts:
        """The same with one of the machines; unchanged if each of them has one device."""
        alone = self.machine.devices == 1
        return self if alone else replace(self, machine=replace(self.machine, machines=1))

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

    @property
    def all_reduce(self) -> float:
        """Seconds of a ring all-reduce of the gradients, with NCCL's latency of such a link."""
        name = "PCIe 3 x16" if self.machine.machines == 1 else "Ethernet 25 Gbit/s"
        latency = LINKS[name].latency or 0.0
        return 2 * (self.devices - 1) * latency + self.link_seconds(2 * self.step()["gradients"])

    @property
    def one_server(self) -> float:
        """Seconds in which one parameter server sends weights to all and gets their gradients."""
        step = self.step()
        return self.devices * (step["weights"] + step["gradients"]) / self.slowest_link

    @property
    def alone(self) -> float | None:
        """Seconds of the whole training on one device."""
        steps = math.ceil(self.data.examples / self.data.batch) * self.data.epochs
        return None if self.model.step_seconds is None else steps * self.model.step_seconds

    def speedup(self, communication: float) -> tuple[float, float] | None:
        """Of all devices with this communication per step: without overlap, and if all overlaps."""
        if (seconds := self.model.step_seconds) is None:
            return None
        work = self.devices * seconds
        return work / (seconds + communication), work / max(seconds, communication)


Answer = Callable[[Facts], tuple[bool, str]]


@dataclass(frozen=True)
class Question:
    """A yes-or-no question: its answer with the evidence, and what follows after yes and no."""

    text: str
    answer: Answer
    yes: str
    no: str


class Choice(NamedTuple):
    """A kind of training: its lecture, what it does, its name in each framework ("": none)."""

    name: str
    lecture: int
    what: str
    called: tuple[str, ...]


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


def _enough(f: Facts) -> tuple[bool, str]:
    if f.alone is None:
        return False, "The time of a step is not known. Measure it on one device (lecture 02)."
    return f.alone <= f.enough, (
        f"The whole training takes {seconds_text(f.alone)} on one device; a training of "
        f"{seconds_text(f.enough)} is taken as short enough."
    )


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


def _pays(f: Facts) -> tuple[bool, str]:
    inside, evidence = _reduce(f.one_machine)
    gain = f.speedup(f.one_server)
    if f.machine.equal or not inside or not gain:
        return inside, evidence
    return gain[0] > 1, (
        f"{evidence} Devices that differ need a parameter server: {ratio_text(gain[0])} of one "
        "device, if one server sends and receives for all."
    )


def _reduce(f: Facts) -> tuple[bool, str]:
    needed = f"An all-reduce on {f.devices:,} devices takes {seconds_text(f.all_reduce)} per step"
    needed += f" ({bytes_text(f.slowest_link)}/s)"
    if f.model.step_seconds is None:
        return True, f"{needed}. Whether that pays depends on the time of a step: not known."
    share = f.model.step_seconds / (f.model.step_seconds + f.all_reduce)
    return share >= PAYS, (
        f"{needed}, computation {seconds_text(f.model.step_seconds)}: a device would compute for "
        f"{100 * share:.0f} % of the time without overlap; {100 * PAYS:.0f} % count as worth it."
    )


def _machines(f: Facts) -> tuple[bool, str]:
    if f.machine.machines == 1:
        return False, f"There is 1 machine, with {f.devices:,} devices."
    pays, evidence = _reduce(f)
    return pays, f"There are {f.machine.machines:,} machines. {evidence}"


def _host(f: Facts) -> tuple[bool, str]:
    state, host, step = f.step().state, f.machine.host_memory, f.sharded()
    rest = step.total - step["optimizer"]
    room = f.machine.machines == 1 and state <= USABLE * host and rest <= f.usable
    return room and f.layers_split().total > f.usable, (
        f"The state of {bytes_text(state)}, split over {f.devices:,} devices, leaves each with "
        f"{bytes_text(f.layers_split().total)} for one example. Beside the devices a machine has "
        f"{bytes_text(host)}; without its share of the optimizer a device would hold "
        f"{bytes_text(rest)}."
    )


def _example(f: Facts) -> tuple[bool, str]:
    state, needed = f.step().state, f.sharded().total
    return state <= f.usable < needed, (
        f"The state of the model is {bytes_text(state)}; with one example and the state sharded, a "
        f"device holds {bytes_text(needed)}."
    )


def _sharding(f: Facts) -> tuple[bool, str]:
    seconds, limit = f.link_seconds(f.sharding_bytes), f.model.step_seconds or SHARDING_SECONDS
    fits, held = _fits("With only the state sharded, each device holds", Facts.sharded)(f)
    return fits and seconds <= limit, (
        f"{held} Gathering the weights twice and reducing the gradients once moves "
        f"{bytes_text(f.sharding_bytes)} per step: {seconds_text(seconds)} over the slowest link "
        f"({bytes_text(f.slowest_link)}/s), which may take {seconds_text(limit)}."
    )


def _groups(f: Facts) -> tuple[bool, str]:
    return min(f.machine.machines, f.machine.devices) > 1, (
        f"Machines: {f.machine.machines:,}, each with {f.machine.devices:,} devices; "
        f"{bytes_text(f.machine.link)}/s inside, {bytes_text(f.machine.network)}/s between."
    )


FIRST = "tied"
# The question, the answer, and where yes and no lead.
QUESTIONS = {
    "tied": Question("Is the data tied to several places?", _tied, "federated", "fits"),
    "fits": Question(
        "Does one training step fit on one device?",
        _fits("A step with a batch of {f.data.batch:,} per device holds", Facts.step),
        "enough", "smaller",
    ),
    "enough": Question("Is one device fast enough?", _enough, "one_device", "several"),
    "several": Question("Is there more than one device?", _several, "pays", "one_device"),
    "pays": Question("Does computation outweigh the all-reduce?", _pays, "equal", "one_device"),
    "equal": Question(
        "Are the devices equal and reliable?", _equal, "machines", "parameter_server"
    ),
    "machines": Question(
        "Does it also pay over several machines?", _machines, "multi_worker", "mirrored"
    ),
    "smaller": Question(
        "Does it fit with a smaller batch?",
        _fits("With a single example it holds", lambda f: f.step(1)), "accumulate", "host",
    ),
    "host": Question("Is there room only in the host's memory?", _host, "central", "layers"),
    "layers": Question(
        "Does it fit when the model and its layers are split over all devices?",
        _fits("Split over all devices ({f.devices:,}), one example holds on each",
              Facts.layers_split), "example", "nothing",
    ),
    "example": Question(
        "Is one example too large, and not the model?", _example, "spatial", "sharding"
    ),
    "sharding": Question(
        "Is sharding the state enough, and the link fast enough?", _sharding, "sharded", "groups"
    ),
    "groups": Question("Several machines, each with several devices?", _groups, "hybrid", "whole"),
    "whole": Question(
        "Is there room for the activations of whole layers?",
        _fits("With only the state sharded, each device holds", Facts.sharded),
        "pipeline", "tensor",
    ),
}  # fmt: skip

FRAMEWORKS = ("TensorFlow", "PyTorch", "JAX", "Horovod")
READ = "November 2026"
CHOICES = {
    "federated": Choice("Federated learning", 25,
        "Each place trains on its own data and sends only updates of the weights.",
        ("Flower", "Flower", "Flower", "")),
    "one_device": Choice("One device", 2,
        "No communication at all. Make this fast before you add devices.",
        ("tf.distribute.OneDeviceStrategy, or nothing", "nothing", "jax.jit", "nothing")),
    "parameter_server": Choice("Parameter server", 15,
        "Workers fetch weights and send gradients at their own pace, without waiting.",
        ("tf.distribute.ParameterServerStrategy", "", "", "")),
    "mirrored": Choice("Mirrored, one machine", 3,
        "Every device holds the whole model, takes its share of the batch, averages gradients.",
        ("tf.distribute.MirroredStrategy", "DistributedDataParallel with torchrun",
         "NamedSharding of the batch", "DistributedOptimizer, DistributedGradientTape")),
    "multi_worker": Choice("Mirrored, several machines", 14,
        "As mirrored on one machine; the all-reduce also crosses the network.",
        ("tf.distribute.MultiWorkerMirroredStrategy",
         "DistributedDataParallel with torchrun on each machine",
         "jax.distributed.initialize, NamedSharding", "the same, with several hosts")),
    "accumulate": Choice("Smaller batch, accumulated", 7,
        "Several small steps add up their gradients before one update. Then ask again with the "
        "small batch.",
        ("a loop of your own; on one device Keras has gradient_accumulation_steps",
         "a loop of your own, with no_sync", "optax.MultiSteps", "backward_passes_per_step")),
    "central": Choice("Variables in the host's memory", 15,
        "The host keeps variables and optimizer; devices compute, and wait for the link to it.",
        ("tf.distribute.experimental.CentralStorageStrategy: experimental, does not shard, Keras 3 "
         "fit fails with Dropout",
         "fully_shard with CPUOffloadPolicy", 'memory_kind="pinned_host"', "")),
    "nothing": Choice("More memory first", 21,
        "Use more devices, shorter numbers, recomputed activations, or a smaller model.",
        ("",) * 4),
    "spatial": Choice("Spatial parallel", 20,
        "Each example is divided: every device has a part of the image or sequence.",
        ("by hand", "by hand; context_parallel for attention", "NamedSharding of positions", "")),
    "sharded": Choice("Sharded data parallel (ZeRO)", 21,
        "Data parallel; each device keeps a share of the state and gathers weights when needed.",
        ("", "fully_shard (FSDP2), DeepSpeed ZeRO", "NamedSharding of the parameters", "")),
    "hybrid": Choice("Hybrid parallel", 20,
        "Data × tensor × pipeline: tensor groups inside a machine, the others between machines.",
        ("DTensor, without pipeline", "DeviceMesh; torchtitan, Megatron-LM",
         "a Mesh of several axes; MaxText", "")),
    "tensor": Choice("Tensor parallel", 19,
        "Each layer is cut inside; devices exchange results within every layer.",
        ("tf.experimental.dtensor", "parallelize_module", "NamedSharding of the weights", "")),
    "pipeline": Choice("Pipeline parallel", 18,
        "Each device keeps some layers; micro-batches flow through, only activations are sent.",
        ("tf.device, by hand", "torch.distributed.pipelining", "shard_map, by hand", "")),
}  # fmt: skip


def frameworks() -> Table:
    """What each choice is called in each framework."""
    from labkit.views.table import Table

    rows = [(one.name, *(name or "none" for name in one.called)) for one in CHOICES.values()]
    note = f"{READ}; TensorFlow, PyTorch and Horovod as installed: 2.21, 2.13 and 0.28.1."
    return Table(("choice", *FRAMEWORKS), rows, "What a choice is called", note)


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
class Decision:
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

    def _rows(self) -> list[tuple[str, str]]:
        one, called = self.taken, zip(FRAMEWORKS, self.taken.called, strict=True)
        divided = self.division and f"{self.division.scheme}: {bytes_text(self.division.total)}"
        return [
            ("choice", f"{self.choice}. {one.what}"),
            *((f"in {framework}", name or "none") for framework, name in called),
            ("taught in", f"lecture {one.lecture:02d}"),
            ("expected", self.expected),
            *([("division", f"{divided} on the fullest device")] if divided else []),
            *(("because", reason) for reason in self.reasons),
            *(("not", f"{'; '.join(names)}. {reason}") for names, reason in self.rejected),
        ]

    def __repr__(self) -> str:
        lines = (f"{what}: {words}" for what, words in self._rows())
        return "\n".join([*lines, str(self.kind)])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        html = table((), self._rows(), footer=str(self.kind), prose=True)
        return {"text/plain": repr(self), "text/html": html}


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
