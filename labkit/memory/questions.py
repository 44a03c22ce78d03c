"""One table of questions: the decision walks it, and its picture is drawn from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from labkit.kinds import bytes_text, count_text, seconds_text
from labkit.memory.facts import Facts

__all__ = [
    "CHOICES",
    "FIRST",
    "GATHER_SECONDS",
    "QUESTIONS",
    "Choice",
    "Question",
    "path",
    "routes",
]

# A step of a model that needs sharding takes seconds; a second of gathering can hide behind it.
# A rule of thumb of this course, not a law.
GATHER_SECONDS = 1.0


@dataclass(frozen=True)
class Question:
    """A yes-or-no question about the facts, and where each answer leads."""

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
    lecture: int | None


def _places(f: Facts) -> str:
    if f.data.sites == 1:
        if f.data.may_leave_site:
            return "All data is in one place and may be moved to the devices."
        return "The data may not leave its place, but it is all in one place: train there."
    if f.data.may_leave_site:
        return (
            f"The data lies in {count_text(f.data.sites)} places, but it may be brought together."
        )
    return f"The data lies in {count_text(f.data.sites)} places and may not leave them."


FIRST = "tied"
QUESTIONS = {
    "tied": Question(
        "Is the data tied to several places?",
        lambda f: f.data.sites > 1 and not f.data.may_leave_site,
        _places,
        yes="federated",
        no="fits",
    ),
    "fits": Question(
        "Does one training step fit on one device?",
        lambda f: f.step().total <= f.usable,
        lambda f: (
            f"A step with {count_text(f.data.batch)} examples per device holds "
            f"{bytes_text(f.step().total)}; {_usable(f, f.step().total)}."
        ),
        yes="several",
        no="smaller",
    ),
    "several": Question(
        "Is there more than one device?",
        lambda f: f.devices > 1,
        lambda f: (
            f"There are {count_text(f.devices)} devices: together they take "
            f"{count_text(f.steps(f.devices))} steps through the data, one alone "
            f"{count_text(f.steps(1))}."
            if f.devices > 1
            else "There is 1 device, so there is nobody to share the work with."
        ),
        yes="equal",
        no="one_device",
    ),
    "equal": Question(
        "Are the devices equal and reliable?",
        lambda f: f.machine.equal,
        lambda f: (
            "The devices are alike and stay up, so nobody waits long for the slowest."
            if f.machine.equal
            else "The devices differ or come and go; a synchronous step waits for the slowest."
        ),
        yes="machines",
        no="parameter_server",
    ),
    "machines": Question(
        "Are they in more than one machine?",
        lambda f: f.machine.machines > 1,
        lambda f: (
            f"The {count_text(f.devices)} devices sit in {_machines(f)}. An all-reduce of the "
            f"gradients takes about {seconds_text(f.all_reduce_seconds())} per step over the "
            f"slowest link ({bytes_text(f.slowest_link)}/s)."
        ),
        yes="multi_worker",
        no="mirrored",
    ),
    "smaller": Question(
        "Does it fit with a smaller batch?",
        lambda f: f.largest_batch >= 1,
        lambda f: (
            f"With {count_text(f.largest_batch)} examples at a time it fits."
            if f.largest_batch
            else f"With a single example it still holds {bytes_text(f.step(1).total)}; "
            f"{_usable(f, f.step(1).total)}."
        ),
        yes="accumulate",
        no="layers",
    ),
    "layers": Question(
        "Does it fit when the model and its layers are split over all devices?",
        lambda f: f.layers_split().total <= f.usable,
        lambda f: (
            f"Split over {_devices(f)}, one example holds "
            f"{bytes_text(f.layers_split().total)} on each; "
            f"{_usable(f, f.layers_split().total)}."
        ),
        yes="shards",
        no="nothing",
    ),
    "shards": Question(
        "Does it fit with whole layers, and only the state shared out?",
        lambda f: f.sharded().total <= f.usable,
        lambda f: (
            f"With weights, gradients and optimizer state shared out over {_devices(f)}, "
            f"each holds {bytes_text(f.sharded().total)}; {_usable(f, f.sharded().total)}."
        ),
        yes="gather",
        no="tensor",
    ),
    "gather": Question(
        f"Can the slowest link carry 3 × the weights in {GATHER_SECONDS:g} s?",
        lambda f: f.gather_seconds() <= GATHER_SECONDS,
        lambda f: (
            f"Sharded training moves about 3 × {bytes_text(f.weights)} of weights per step; the "
            f"slowest link ({bytes_text(f.slowest_link)}/s) needs "
            f"{seconds_text(f.gather_seconds())} for it."
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
        None,
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
        None,
    ),
    "nothing": Choice(
        "More memory first",
        "Use more devices, shorter numbers, recomputed activations, or a smaller model.",
        "none",
        None,
    ),
    "tensor": Choice(
        "Tensor parallel",
        "Each layer is cut inside; devices exchange results within every layer.",
        "tf.experimental.dtensor, or a framework made for it",
        None,
    ),
    "sharded": Choice(
        "Sharded data parallel (ZeRO)",
        "Data parallel; each device keeps a share of the state and gathers weights when needed.",
        "none in tf.distribute: DeepSpeed ZeRO or PyTorch FSDP",
        None,
    ),
    "pipeline": Choice(
        "Pipeline parallel",
        "Each device keeps some layers; micro-batches flow through, only activations are sent.",
        "none in tf.distribute: tf.device by hand, or a framework made for it",
        None,
    ),
}


def path(facts: Facts) -> tuple[tuple[str, bool], ...]:
    """The questions that these facts meet, each with its answer, in order."""
    walked = []
    key = FIRST
    while key in QUESTIONS:
        answer = QUESTIONS[key].holds(facts)
        walked.append((key, answer))
        key = QUESTIONS[key].yes if answer else QUESTIONS[key].no
    return tuple(walked)


def routes(key: str = FIRST) -> Iterator[tuple[tuple[tuple[str, bool], ...], str]]:
    """Every way through the table: the answers, and the choice they end in."""
    if key in CHOICES:
        yield (), key
        return
    for answer, after in ((True, QUESTIONS[key].yes), (False, QUESTIONS[key].no)):
        for rest, end in routes(after):
            yield ((key, answer), *rest), end


def _usable(f: Facts, needed: int) -> str:
    verdict = "it fits" if needed <= f.usable else "too much"
    memory = bytes_text(f.machine.device_memory)
    return f"usable are {bytes_text(f.usable)} of a device's {memory}: {verdict}"


def _devices(f: Facts) -> str:
    return "1 device" if f.devices == 1 else f"{count_text(f.devices)} devices"


def _machines(f: Facts) -> str:
    return "1 machine" if f.machine.machines == 1 else f"{count_text(f.machine.machines)} machines"
