"""What NVML's errors mean for a reader, and the states that were told because of them."""

from __future__ import annotations

from labkit.hardware.gpus import BROKEN
from labkit.telemetry.gpu_calls import NARROW
from labkit.telemetry.gpu_lists import FOREIGN, HIDDEN, UNCOUNTED
from labkit.telemetry.metrics import METRICS, State, Why

__all__ = ["Down", "Lost", "Told", "down_says", "is_absent", "lost_state", "metric_state", "raised"]

_REFUSED = 4
# This GPU or this driver does not have it, and will not have it in a moment.
_ABSENT = {2, 3, 6, 13, 25, 26, NARROW, FOREIGN, HIDDEN, UNCOUNTED, _REFUSED}
_LOST = {15, 16, 28}
# The library and the driver no longer work together: nothing can be asked of any GPU.
_DOWN = {1: "", 9: "DRIVER_NOT_LOADED", 12: "", 18: "LIB_RM_VERSION_MISMATCH"}
_WORDS = {
    10: "it gave no answer in time",
    17: "the operating system refused",
    20: "the driver had no memory for it",
    27: "it is not ready",
    999: "an unknown error",
}


class Lost(Exception):
    """The device does not answer any more; the others do."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Down(Exception):
    """No device can be asked any more."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def raised(code: int) -> None:
    """Raise `Lost` or `Down` where the code means one of them."""
    if code in _LOST:
        raise Lost(code)
    if code in _DOWN:
        raise Down(code)


def is_absent(code: int) -> bool:
    """Whether asking again soon is in vain."""
    return code in _ABSENT


def lost_state(label: str, code: int) -> tuple[Why, str]:
    """Why a device gives nothing at all."""
    if code == _REFUSED:
        return "refused", (
            f"You have no permission to ask {label}. "
            "Ask your administrator for access to it (/dev/nvidia*)."
        )
    if code == 16:
        return "lost", f"{label} has failed and must be reset. Ask your administrator to reset it."
    if code in _LOST:
        return "lost", (
            f"{label} is lost: it no longer answers the driver. Restart the machine; if it "
            "happens again, the GPU, its power or its slot is faulty."
        )
    return (
        "silent",
        f"{label} cannot be asked: {_words(code)}. Run nvidia-smi and see what it says.",
    )


def down_says(code: int) -> str:
    """Why no GPU gives anything."""
    known = BROKEN.get(_DOWN.get(code, ""))
    return known or (
        "The NVIDIA driver has stopped answering, which happens when it is reloaded. "
        "It is asked again from time to time."
    )


def metric_state(label: str, metric: str, code: int, detail: str, mig: str) -> tuple[Why, str]:
    """Why a metric gives no number. `mig`: "instance", "whole" (cut into instances) or ""."""
    title = METRICS[metric].title
    if code == _REFUSED:
        return "refused", (
            f"You have no permission to read the {title} of {label}. "
            "Ask your administrator for access to the GPU's counters."
        )
    if not is_absent(code):
        why = detail or _words(code)
        return "silent", f"{label} does not tell its {title} at the moment: {why}."
    ours = _ABSENT_SAYS.get((metric, code)) or _ABSENT_SAYS.get((metric, None))
    if code in (FOREIGN, HIDDEN, UNCOUNTED, NARROW) and ours:
        return "not supported", ours.format(label=label)
    if mig == "instance":
        return "not supported", (
            f"NVML tells no {title} of {label}, but only of a whole GPU that is not cut with MIG."
        )
    if mig == "whole":
        return "not supported", (
            f"{label} is cut into instances with MIG, and NVML then tells no {title} of the whole."
        )
    return "not supported", (ours or f"{{label}} does not report {title}.").format(label=label)


_ABSENT_SAYS: dict[tuple[str, int | None], str] = {
    ("memory", None): (
        "{label} counts no memory of its own, as chips do whose GPU and CPU share one memory "
        "(GB10, Jetson). Look at the memory of the machine instead."
    ),
    ("sm_activity", None): (
        "{label} does not count how many of its multiprocessors work. "
        "Data-centre GPUs from Hopper (H100) on do."
    ),
    ("pcie", None): (
        "{label} keeps no counter of its PCIe traffic, and measuring it would hold up the panel "
        "for 20 ms each time."
    ),
    ("pcie", NARROW): (
        "The PCIe counter of {label} starts over faster than it is looked at, so its growth is not "
        "known. Look more often."
    ),
    ("nvlink", None): "{label} has no NVLink in use, or does not count its traffic.",
    ("process_memory", None): "{label} does not tell which process uses its memory.",
    ("process_memory", FOREIGN): (
        "The driver numbers the processes on {label} as the host does, outside of this container, "
        "so which of them is this one cannot be told. Start the container with the host's process "
        "numbers (--pid=host) to see it."
    ),
    ("process_memory", HIDDEN): (
        "Memory of {label} is in use, but the driver names no process, as is usual in a container. "
        "Start the container with the host's process numbers (--pid=host) to see it."
    ),
    (
        "process_memory",
        UNCOUNTED,
    ): "The driver does not tell how much memory a process of {label} has.",
}


def _words(code: int) -> str:
    return _WORDS.get(code, f"NVML's error {code}")


class Told:
    """The states that hold, so that each is told once, and told to be over."""

    def __init__(self) -> None:
        self._holding: dict[tuple[str, str], Why] = {}
        self._new: list[State] = []

    def tell(self, now: float, device: str, metric: str, why: Why, says: str) -> None:
        """A state begins, unless it holds already."""
        if self._holding.get((device, metric)) != why:
            self._holding[device, metric] = why
            self._new.append(State(now, device, metric, why, says))

    def fine(self, now: float, device: str, metric: str, says: str, *ended: Why) -> None:
        """A state is over, if it is one of these (or any, where none is named)."""
        why = self._holding.get((device, metric))
        if why is not None and (why in ended or not ended):
            del self._holding[device, metric]
            self._new.append(State(now, device, metric, "fine", says))

    def holds(self, device: str, metric: str) -> Why | None:
        """The state that was told last, if it still holds."""
        return self._holding.get((device, metric))

    def take(self) -> tuple[State, ...]:
        """What has begun or ended since the last time."""
        if not self._new:
            return ()
        new, self._new = self._new, []
        return tuple(new)
