"""Asking the driver one thing at a time, so that one refusal does not spoil the other answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Questions", "error_name"]

_REASONS = {
    "NOT_SUPPORTED": "not supported here",
    "FUNCTION_NOT_FOUND": "the driver is too old for it",
    "NO_PERMISSION": "no permission",
    "TIMEOUT": "no answer in time",
}


@dataclass
class Questions:
    """Asks NVML one thing at a time and remembers what it refused, so that eight GPUs without a
    metric give one sentence and not eight.
    """

    pynvml: Any
    refused: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)

    def answer(
        self,
        what: str,
        gpu: int | None,
        ask: Callable[..., Any],
        *arguments: Any,
        quiet: str = "",
        otherwise: Any = None,
    ) -> Any:
        """The answer, or None. An error named in `quiet` is ordinary and gives `otherwise`."""
        if gpu in self.lost:
            return None
        try:
            return ask(*arguments)
        except self.pynvml.NVMLError as fault:
            name = error_name(self.pynvml, fault)
            if name == "GPU_IS_LOST" and gpu is not None:
                self.lost.add(gpu)
                return None
            if name in quiet.split():
                return otherwise
            reason = _REASONS.get(name, str(fault).rstrip("."))
        except UnicodeDecodeError:
            reason = "its answer is not text"
        self.refused.setdefault((what, reason), []).extend([] if gpu is None else [gpu])
        return None

    def sentences(self) -> tuple[str, ...]:
        """What to tell a reader about all that was not answered."""
        lost = [
            f"GPU {index} is lost: it no longer answers the driver. Restart the machine; if it "
            "happens again, the GPU, its power or its slot is faulty."
            for index in sorted(self.lost)
        ]
        refused = [
            f"{_who(numbers)} not report {what}: {reason}."
            for (what, reason), numbers in self.refused.items()
        ]
        return (*lost, *refused)


def _who(numbers: list[int]) -> str:
    unique = sorted(set(numbers))
    if not unique:
        return "The driver does"
    if len(unique) == 1:
        return f"GPU {unique[0]} does"
    return f"GPUs {', '.join(map(str, unique[:-1]))} and {unique[-1]} do"


def error_name(pynvml: Any, fault: Any) -> str:
    """The name of NVML's error, without its prefix."""
    for name in _CODES:
        if getattr(pynvml, f"NVML_ERROR_{name}", None) == fault.value:
            return name
    return "UNKNOWN"


_CODES = (
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "NOT_FOUND",
    "INVALID_ARGUMENT",
    "DRIVER_NOT_LOADED",
    "TIMEOUT",
    "LIBRARY_NOT_FOUND",
    "FUNCTION_NOT_FOUND",
    "GPU_IS_LOST",
    "LIB_RM_VERSION_MISMATCH",
)
