"""What answers of lecture 64 are judged by: choosing a strategy, and the capstone project."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from labkit.exercises.judges.answers import numbers_in
from labkit.exercises.task import Unanswered, Wrong
from labkit.kinds import LabError, bytes_text

# A shape, machines, devices of each, their memory: the smallest groups that fit have 1, 8, 8, 32
# and, in the last but one, 6 devices; in the second 4 would fit into all of the memory, not into
# nine tenths. In others fewer would fit that divide no machine, not all devices, or not the heads,
# and in the last one all but the last stage, which has the logits of a large vocabulary.
_LAYOUTS = (
    ({"layers": 24, "hidden": 2048, "heads": 16}, 2, 4, 40e9),
    ({"layers": 48, "hidden": 6144, "heads": 64}, 1, 8, 64e9),
    ({"layers": 48, "hidden": 6144, "heads": 64}, 4, 4, 40e9),
    ({"layers": 96, "hidden": 12288, "heads": 96}, 8, 8, 80e9),
    ({"layers": 24, "hidden": 3072, "heads": 24}, 3, 4, 12e9),
    ({"layers": 24, "hidden": 3072, "heads": 24}, 1, 8, 14e9),
    ({"layers": 24, "hidden": 2400, "heads": 20}, 2, 8, 4.2e9),
    ({"layers": 24, "hidden": 3072, "heads": 24}, 3, 2, 14e9),
    (
        {"layers": 16, "hidden": 2048, "heads": 16, "sequence": 8192, "vocabulary": 256_000},
        8,
        2,
        13.2e9,
    ),
)
_ANSWERS = (("one", "other"), (False, True), (True, False), (7, 3), (0, 0.5), ((1, 2), (1, 3)))
_LIMITS = ((0.487e9, 1e6, 1e12), (3.0, 1.0, 100.0), (1e-4, 1e-9, 1e3), (90.0, 1.0, 100.0),
           (0.00013223, 1e-9, 1e3), (7.3e25, 1e-30, 1e30))  # fmt: skip
THRESHOLDS = [
    {"at": at, "low": low, "high": high, "both": both}
    for (at, low, high), both in zip(_LIMITS, _ANSWERS, strict=True)
]
REPORT = ("question", "devices", "predicted", "predicted_at", "measured", "measured_at", "rounds",
          "efficiency", "difference", "verdict", "inside", "explanation")  # fmt: skip
# Why results are not equal, or two accuracies.
CAUSE = re.compile(
    r"(?i)dropout|random|seed|shuffl|order|precision|round|batch|bit|async|noise|\d\D+\d"
)
QUANTITY = re.compile(r"\d\s*(%|×|x\b|[nµm]?s\b|min|h\b|[kMG]?B\b|per ?cent|\w*sec|times|images)")


def asked(my_threshold: Callable[..., Any], at: float, low: float, high: float, both: Any) -> Any:
    """The number at which `both` answers change, as it is found, and with how many questions."""
    questions: list[float] = []

    def decide(x: float) -> Any:
        questions.append(x)
        return both[bool(x >= at)]

    (found,) = numbers_in([my_threshold(decide, low, high)], "a number")
    what = f"At {at:g}, between {low:g} and {high:g}, {both[0]!r} becomes {both[1]!r}"
    return {"found": found, "asked": len(questions), "what": what}


def examine_layout(my_layout: Callable[..., Any]) -> None:
    """A layout that fits, with as many replicas as the best one."""
    for shape, machines, per_machine, device in _LAYOUTS:
        model = {"sequence": 2048, "vocabulary": 51200, **shape}
        layout = my_layout(dict(model), machines, per_machine, device)
        if fault := _layout_fault(layout, model, machines, per_machine, device):
            where = f"{shape['layers']} layers on {machines} × {per_machine} devices"
            raise Wrong(f"For {where}: {fault}")


def _layout_fault(
    layout: Any, model: dict[str, Any], machines: int, per_machine: int, device: float
) -> str:
    from labkit import choosing, memory

    if layout is None:
        return "it returned None. Where it finds nothing, it tries too few divisions."
    ranks, groups = machines * per_machine, [group for stages in layout for group in stages]
    if sorted(rank for group in groups for rank in group) != list(range(ranks)):
        return f"each of the ranks 0 to {ranks - 1} must occur once."
    for group in groups:
        if len({rank // per_machine for rank in group}) > 1:
            return f"the tensor group {group} is in more than one machine."
    if len({(len(stages), len(group)) for stages in layout for group in stages}) > 1:
        return "each replica must have as many stages, and each stage as many ranks, as any other."
    sizes: dict[str, Any] = {
        "tensor": len(groups[0]),
        "pipeline": len(layout[0]),
        "data": len(layout),
    }
    try:
        step = memory.fullest(memory.transformer(
            **model, **sizes, zero=1, sequence_parallel=True, recompute="selective"
        ))  # fmt: skip
    except LabError as fault:
        return str(fault)
    if step.total > (usable := 0.9 * device):
        held = ", ".join(f"{name} {count}" for name, count in sizes.items())
        return f"{held}: {bytes_text(step.total)} do not fit into {bytes_text(usable)}."
    best = choosing.divide(model, choosing.Machine(device, per_machine, machines)).model
    fewer = best is not None and len(layout) < best.data
    return "it fits, but a division with more replicas does, too." if fewer else ""


def check_report(told: Callable[..., None], report: Any) -> None:
    """Whether the numbers and words of a report agree with each other; not whether it is good."""
    from labkit.timing.intervals import least_rounds
    from labkit.timing.prediction import Prediction
    from labkit.timing.verdict import CONFIDENCE, SAME_WITHIN

    if not isinstance(report, Mapping):
        raise Wrong(f"A report is a dict with {', '.join(REPORT)}.")
    if missing := [name for name in REPORT if report.get(name, ...) is ...]:
        if {"question", "inside", "explanation"} <= {*missing}:
            raise Unanswered  # the capstone's own cell has the rest
        raise Wrong(f"The report lacks {', '.join(missing)}.")
    value, low, high = _interval(report)
    numbers = "predicted", "devices", "rounds", "efficiency"
    band = 1 + SAME_WITHIN
    verdict = "faster" if low > band else "slower" if high < 1 / band else "cannot tell"
    difference = report["difference"]
    told(
        joined="\n",
        **{name: report[name] for name in ("question", "explanation", "inside", "verdict")},
        **{name: _number(report, name) for name in numbers},
        **{name: _moment(report, name) for name in ("predicted_at", "measured_at")},
        difference=difference if isinstance(difference, str) else _number(report, "difference"),
        # The capstone's own prediction; its file has the times.
        late=isinstance(own := report["predicted"], Prediction) and own.fault(),
        value=value, low=low, high=high,
        word="same" if 1 / band < low and high < band else verdict,
        least=least_rounds(CONFIDENCE),
    )  # fmt: skip


def _number(report: Mapping[str, Any], name: str) -> float:
    given = getattr(report[name], "guess", report[name])  # a labkit.predict, too
    try:
        return float(given)
    except (TypeError, ValueError):
        raise Wrong(f"{name} must be a number, not {report[name]!r}.") from None


def _moment(report: Mapping[str, Any], name: str) -> float:
    """Seconds of a time.time(), or of a date and time as ISO 8601 writes them."""
    given = str(report[name]).strip()
    with suppress(ValueError):
        return datetime.fromisoformat(given).timestamp()
    with suppress(ValueError):
        return float(given)
    raise Wrong(f"{name} must be a time.time() or a moment as 2026-11-24 14:05, not {given!r}.")


def _interval(report: Mapping[str, Any]) -> tuple[float, float, float]:
    given = report["measured"]
    if all(hasattr(given, name) for name in ("value", "low", "high")):  # comparison.speedup()
        given = (given.value, given.low, given.high)
    try:
        value, low, high = map(float, given)
    except (TypeError, ValueError):
        value = low = high = 0.0
    if not 0 < low <= value <= high < math.inf:
        raise Wrong("measured must be (speed-up, low, high), with low ≤ speed-up ≤ high.")
    return value, low, high


def few_words(text: Any) -> bool:
    """Fewer than five different ones."""
    return len({*re.findall(r"\w{2,}", str(text).casefold())}) < 5
