"""The questions that lead to a choice: each with its answer, the evidence, and what follows."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from labkit.choosing.facts import Facts
from labkit.kinds import bytes_text, count_text, ratio_text, seconds_text
from labkit.memory.step_memory import USABLE, Footprint

# Rules of thumb of this course. Data parallelism pays if devices compute for at least half of the
# time. A step of a model that needs sharding takes seconds: a second of communication can overlap
# with it.
PAYS = 0.5
SHARDING_SECONDS = 1.0

Answer = Callable[[Facts], tuple[bool, str]]


@dataclass(frozen=True)
class Question:
    """A yes-or-no question: its answer with the evidence, and what follows after yes and no."""

    text: str
    answer: Answer
    yes: str
    no: str


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
