"""The sentences about replicas: what to expect of them, and why a request cannot be met."""

from __future__ import annotations

from labkit.hardware.request import Request
from labkit.kinds import recorded

__all__ = [
    "counted",
    "cpu_expectation",
    "cpu_summary",
    "gpu_expectation",
    "on_cores",
    "reduction_fault",
    "spelled",
    "split_expectation",
    "too_late_fault",
]

# The figures of the sentence below, and where they come from.
_SLOWER = recorded("a 2-core machine without a GPU", "November 2026")


def on_cores(cores: int) -> str:
    """A count of cores."""
    return f"{cores} core{'s' if cores != 1 else ''}"


def counted(count: int) -> str:
    """A count of replicas."""
    return f"{count} replica{'s' if count != 1 else ''}"


def spelled(reduction: str) -> str:
    """A reduction as a sentence has it."""
    return "NCCL" if reduction == "nccl" else reduction


def cpu_summary(count: int, cores: int, alone: bool) -> str:
    """What these logical CPUs are; `alone` when each computes with one core."""
    name = f"{count} logical CPU{'s' if count > 1 else ''}"
    if not alone or count > cores:
        return f"{name} sharing {on_cores(cores)}"
    return f"{name} with one core each" if count > 1 else f"{name} with one core"


def cpu_expectation(count: int, cores: int, alone: bool) -> str:
    """What logical CPUs are good for."""
    if count == 1:
        return "One device: the baseline that more replicas are compared with."
    if alone and count <= cores:
        return (
            f"Expect up to {count} times the speed of one core where a step computes much for each "
            "byte of gradients, and a loss where it computes little. (TensorFlow by itself gives "
            "one device all cores; against that, 2 logical CPUs ran at 0.67 to 0.88 times the "
            f"speed, {_SLOWER}.)"
        )
    return (
        f"Logical CPUs teach correctness, not speed: {count} of them share {on_cores(cores)}. "
        "Expect no speed-up (2 logical CPUs ran at 0.67 to 0.88 times the speed of one device "
        f"that had all cores; {_SLOWER})."
    )


def gpu_expectation(count: int, models: int) -> str:
    """What real GPUs can give at most."""
    if count == 1:
        return "One device: the baseline that more replicas are compared with."
    uneven = " The slowest of these different GPUs sets the pace." if models > 1 else ""
    return (
        f"At most {count} times as fast as one GPU. How much of that you get depends on how much a "
        f"step computes for each byte of gradients it exchanges: measure it.{uneven}"
    )


def split_expectation(count: int) -> str:
    """What the pieces of one GPU are good for."""
    if count == 1:
        return "One device: the baseline that more replicas are compared with."
    return (
        "The pieces share one chip, so expect no speed-up: they show that training on "
        f"{counted(count)} gives the right result."
    )


def too_late_fault(request: Request, count: int, device: str) -> str:
    """TensorFlow is initialised, and its devices are what they are."""
    have = f"{count} {device}{'s' if count != 1 else ''}"
    only_cpus = ', devices="cpu"' if "CPU" in device else ""
    return (
        f"You asked for {request.asked}, but TensorFlow is already running with {have}, and a "
        "running TensorFlow cannot be split. Choose Kernel → Restart and call labkit.replicas "
        "before anything else uses TensorFlow; or go on with what there is: "
        f"labkit.replicas({count}{only_cpus})."
    )


def reduction_fault(asked: object, possible: tuple[str, ...], placement: str) -> str:
    """A reduction that does not exist, or does not work on these replicas."""
    choices = ", ".join(f'"{name}"' for name in possible)
    if possible == ("none",):
        return (
            f"You asked for the reduction {asked!r}, but one replica has nothing to reduce. "
            "Leave the reduction out, or ask for labkit.replicas(2)."
        )
    why = "there is no such reduction"
    if asked == "nccl":
        why = {
            "cpus": "NCCL works between GPUs only, and these replicas are CPUs",
            "one gpu, split": "NCCL needs a GPU of its own for each replica, and these share one",
        }.get(placement, "NCCL exists for Linux only")
    elif asked == "none":
        why = "without a reduction every replica would train a model of its own"
    return f"You asked for the reduction {asked!r}, but {why}. Choose one of {choices}."
