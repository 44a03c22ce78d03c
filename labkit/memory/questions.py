"""The facts that a choice of parallelism follows from, and the table of questions that decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labkit.arguments import number, one_of, whole
from labkit.kinds import bytes_text, count_text, seconds_text
from labkit.memory.footprint import CONVENTIONS, Footprint, footprint

__all__ = ["CHOICES", "FIRST", "QUESTIONS", "Choice", "Data", "Facts", "Machine", "Model",
           "Question"]  # fmt: skip

# Two rules of thumb of this course. A tenth of a device's memory stays with the framework. A step
# of a model that needs sharding takes seconds: a second of communication can overlap with it.
USABLE = 0.9
SHARDING_SECONDS = 1.0
STATE = ("weights", "gradients", "optimizer")


@dataclass(frozen=True)
class Model:
    """A model and the numbers it trains with.

    >>> Model(parameters=101_770, activation_bytes=4_200)
    Model(parameters=101770, activation_bytes=4200, convention='float32 adam')
    """

    parameters: float
    activation_bytes: float = 0
    convention: str = "float32 adam"

    def __post_init__(self) -> None:
        number("parameters", self.parameters, at_least=1)
        number("activation_bytes", self.activation_bytes, at_least=0)
        one_of("convention", self.convention, CONVENTIONS)


@dataclass(frozen=True)
class Data:
    """Examples, their size, how many of them one device takes per step, and where they may go."""

    examples: float
    example_bytes: float = 0
    batch: int = 32
    sites: int = 1
    may_leave_site: bool = True

    def __post_init__(self) -> None:
        number("examples", self.examples, at_least=1)
        number("example_bytes", self.example_bytes, at_least=0)
        whole("batch", self.batch, at_least=1)
        whole("sites", self.sites, at_least=1)


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

    def __post_init__(self) -> None:
        number("device_memory", self.device_memory, at_least=1)
        whole("devices", self.devices, at_least=1)
        whole("machines", self.machines, at_least=1)
        number("link", self.link, at_least=1)
        number("network", self.network, at_least=1)


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

    @property
    def largest_batch(self) -> int:
        """The most examples whose step fits on one device beside the whole model; 0 if none."""
        free = self.usable - self.step().state
        per_example = round(self.model.activation_bytes) + round(self.data.example_bytes)
        if free < per_example:
            return 0
        return min(self.data.batch, free // per_example) if per_example else self.data.batch

    def steps(self, devices: int) -> int:
        """Steps of one pass through the data."""
        return -(-round(self.data.examples) // (self.data.batch * devices))

    def step(self, batch: int | None = None) -> Footprint:
        """The footprint of a data-parallel step with `batch` examples per device."""
        return footprint(
            self.model.parameters,
            batch=batch or self.data.batch,
            activation_bytes=self.model.activation_bytes,
            example_bytes=self.data.example_bytes,
            convention=self.model.convention,
        )

    def sharded(self) -> Footprint:
        """One example, with the state sharded over all devices."""
        return self.step(1).sharded(self.devices, STATE)

    def layers_split(self) -> Footprint:
        """As `sharded`, and each layer's activations split inside a machine."""
        return self.sharded().sharded(self.machine.devices, ("activations",))

    def all_reduce_seconds(self) -> float:
        """A ring all-reduce of the gradients over the slowest link, without latency."""
        gradients = self.step()["gradients"] or self.step()["weights"]
        return 2 * (self.devices - 1) / self.devices * gradients / self.slowest_link

    @property
    def sharding_bytes(self) -> int:
        """What stage 3 of ZeRO moves per step: weights gathered twice, gradients reduced once."""
        step = self.step()
        return 2 * step["weights"] + (step["gradients"] or step["weights"])

    def sharding_seconds(self) -> float:
        """The time of that over the slowest link, without latency."""
        return (self.devices - 1) / self.devices * self.sharding_bytes / self.slowest_link


@dataclass(frozen=True)
class Question:
    """A yes-or-no question about the facts, and the question or choice after each answer."""

    text: str
    holds: Callable[[Facts], bool]
    evidence: Callable[[Facts], str]
    yes: str
    no: str


@dataclass(frozen=True)
class Choice:
    """A kind of training: its name, what it does, its name in TensorFlow, the lecture on it."""

    name: str
    what: str
    strategy: str
    lecture: int | None = None


def _sites(f: Facts) -> str:
    may = "may" if f.data.may_leave_site else "may not"
    return f"Places that hold data: {f.data.sites}; the data {may} be moved to other devices."


def _fit(f: Facts, needed: int) -> str:
    verdict = "it fits" if needed <= f.usable else "too much"
    memory = bytes_text(f.machine.device_memory)
    return (
        f"{bytes_text(needed)}; usable are {bytes_text(f.usable)} of a device's {memory}: {verdict}"
    )


def _several(f: Facts) -> str:
    together, alone = count_text(f.steps(f.devices)), count_text(f.steps(1))
    if f.devices == 1:
        return f"There is 1 device: {alone} steps through the data."
    return (
        f"There are {f.devices:,} devices: together they take {together} steps through the data, "
        f"one alone {alone}."
    )


def _equal(f: Facts) -> str:
    if f.machine.equal:
        return "The devices are alike and stay up, so there are no stragglers."
    return "The devices differ or come and go; a synchronous step waits for the slowest."


FIRST = "tied"
QUESTIONS = {
    "tied": Question(
        "Is the data tied to several places?",
        lambda f: f.data.sites > 1 and not f.data.may_leave_site,
        _sites,
        yes="federated",
        no="fits",
    ),
    "fits": Question(
        "Does one training step fit on one device?",
        lambda f: f.step().total <= f.usable,
        lambda f: (
            f"A step with {count_text(f.data.batch)} examples per device holds "
            f"{_fit(f, f.step().total)}."
        ),
        yes="several",
        no="smaller",
    ),
    "several": Question(
        "Is there more than one device?",
        lambda f: f.devices > 1,
        _several,
        yes="equal",
        no="one_device",
    ),
    "equal": Question(
        "Are the devices equal and reliable?",
        lambda f: f.machine.equal,
        _equal,
        yes="machines",
        no="parameter_server",
    ),
    "machines": Question(
        "Are they in more than one machine?",
        lambda f: f.machine.machines > 1,
        lambda f: (
            f"Machines: {f.machine.machines:,}, with {f.devices:,} devices in all. "
            f"An all-reduce of the gradients takes about {seconds_text(f.all_reduce_seconds())} "
            f"per step over the slowest link ({bytes_text(f.slowest_link)}/s)."
        ),
        yes="multi_worker",
        no="mirrored",
    ),
    "smaller": Question(
        "Does it fit with a smaller batch?",
        lambda f: f.largest_batch >= 1,
        lambda f: f"With a single example it holds {_fit(f, f.step(1).total)}.",
        yes="accumulate",
        no="layers",
    ),
    "layers": Question(
        "Does it fit when the model and its layers are split over all devices?",
        lambda f: f.layers_split().total <= f.usable,
        lambda f: (
            f"Split over all devices ({f.devices:,}), one example holds on each "
            f"{_fit(f, f.layers_split().total)}."
        ),
        yes="shards",
        no="nothing",
    ),
    "shards": Question(
        "Does it fit with whole layers, and only the state sharded?",
        lambda f: f.sharded().total <= f.usable,
        lambda f: (
            "With weights, gradients and optimizer state sharded over "
            f"{f.devices:,} devices, each holds {_fit(f, f.sharded().total)}."
        ),
        yes="gather",
        no="tensor",
    ),
    "gather": Question(
        f"Can the slowest link carry 2 × weights and gradients in {SHARDING_SECONDS:g} s?",
        lambda f: f.sharding_seconds() <= SHARDING_SECONDS,
        lambda f: (
            "Sharded training gathers the weights twice and reduces the gradients once, "
            f"{bytes_text(f.sharding_bytes)} per step; the slowest link "
            f"({bytes_text(f.slowest_link)}/s) needs {seconds_text(f.sharding_seconds())} for it."
        ),
        yes="sharded",
        no="pipeline",
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
        8,
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
        9,
    ),
    "accumulate": Choice(
        "Smaller batch, accumulated",
        "Several small steps add up their gradients before one update; works on any device count.",
        "any strategy: optimizer with gradient_accumulation_steps in Keras",
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
