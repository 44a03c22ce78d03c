"""The tasks of lecture 27: choosing a strategy, and the capstone project."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from labkit.exercises.judges.answers import function, function_task, number, numbers_in
from labkit.exercises.task import Task, Unanswered, Wrong
from labkit.kinds import LabError, bytes_text

# A shape, machines, devices of each, their memory: the smallest groups that fit have 1, 8, 8 and
# 32 devices; in the second 4 would fit into all of the memory, not into nine tenths.
_LAYOUTS = (
    ({"layers": 24, "hidden": 2048, "heads": 16}, 2, 4, 40e9),
    ({"layers": 48, "hidden": 6144, "heads": 64}, 1, 8, 64e9),
    ({"layers": 48, "hidden": 6144, "heads": 64}, 4, 4, 40e9),
    ({"layers": 96, "hidden": 12288, "heads": 96}, 8, 8, 80e9),
)
_THRESHOLDS = ((0.487e9, 1e6, 1e12), (3.0, 1.0, 100.0), (1e-4, 1e-9, 1e3), (90.0, 1.0, 100.0))
# Compute, bytes, ranks, latency, bandwidth: each tells a wrong count of messages or bytes apart.
_RULES = (
    (0.08, 102.4e6, 8, 14e-6, 1.25e9), (0.2, 102.4e6, 8, 14e-6, 1.25e9),
    (0.12, 102.4e6, 2, 14e-6, 1.25e9), (20e-6, 407_080, 2, 5.7e-6, 16e9),
    (0.4, 102.4e6, 20, 14e-6, 0.125e9), (1e-3, 4_000, 64, 14e-6, 1e9), (1e-6, 1e9, 1, 14e-6, 1e9),
    (1.77e-3, 4_000, 64, 14e-6, 1e9),
)  # fmt: skip
_ANSWERS = (("one", "other"), (False, True), (True, False), (7, 3))
REPORT = ("question", "devices", "predicted", "predicted_at", "measured", "measured_at", "rounds",
          "efficiency", "difference", "verdict", "inside", "explanation")  # fmt: skip
_QUANTITY = re.compile(r"\d\s*(%|×|x\b|[nµm]?s\b|min|h\b|[kMG]?B\b|per ?cent|\w*sec|times|images)")


def _examine_threshold(my_threshold: Callable[..., Any]) -> None:
    for (truth, low, high), (below, above) in zip(_THRESHOLDS, _ANSWERS, strict=True):
        asked: list[float] = []

        def decide(x: float, at: float = truth, to: Any = asked, both: Any = (below, above)) -> Any:
            to.append(x)
            return both[bool(x >= at)]

        (found,) = numbers_in([my_threshold(decide, low, high)], "a number")
        what = f"At {truth:g}, between {low:g} and {high:g}, {below!r} becomes {above!r}"
        if not math.isclose(found, truth, rel_tol=0.01):
            why = " Keep the half in which the answer changes, and a step that is a factor."
            why = " Go on until it is found to 1 %." if 0.5 < found / truth < 2 else why
            raise Wrong(f"{what}; it returned {found:g}.{why}")
        if len(asked) > 200:
            raise Wrong(f"{what}; it called decide {len(asked)} times. 200 are enough.")


def _examine_layout(my_layout: Callable[..., Any]) -> None:
    for shape, machines, per_machine, device in _LAYOUTS:
        model = {**shape, "sequence": 2048, "vocabulary": 51200}
        layout = my_layout(dict(model), machines, per_machine, device)
        if fault := _layout_fault(layout, model, machines, per_machine, device):
            where = f"{shape['layers']} layers on {machines} × {per_machine} devices"
            raise Wrong(f"For {where}: {fault}")


def _layout_fault(
    layout: Any, model: dict[str, Any], machines: int, per_machine: int, device: float
) -> str:
    from labkit import choosing, memory

    ranks, groups = machines * per_machine, [group for stages in layout for group in stages]
    if sorted(rank for group in groups for rank in group) != list(range(ranks)):
        return f"each of the ranks 0 to {ranks - 1} must occur once."
    for group in groups:
        if len({rank // per_machine for rank in group}) > 1:
            return f"the tensor group {group} is in more than one machine."
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


def _check_report(report: Any) -> None:
    """Whether the numbers and words of a report agree with each other; not whether it is good."""
    if not isinstance(report, Mapping):
        raise Wrong(f"A report is a dict with {', '.join(REPORT)}.")
    if missing := [name for name in REPORT if report.get(name, ...) is ...]:
        if {"question", "inside", "explanation"} <= {*missing}:
            raise Unanswered  # the capstone's own cell has the rest
        raise Wrong(f"The report lacks {', '.join(missing)}.")
    if faults := [text for wrong, text in _report_faults(report) if wrong]:
        raise Wrong("\n".join(faults))


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


def _report_faults(report: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    from labkit.timing.intervals import least_rounds
    from labkit.timing.prediction import Prediction
    from labkit.timing.verdict import CONFIDENCE, SAME_WITHIN

    value, low, high = _interval(report)
    names = "predicted", "devices", "rounds", "efficiency"
    predicted, devices, rounds, efficiency = (_number(report, name) for name in names)
    band = 1 + SAME_WITHIN
    word = "faster" if low > band else "slower" if high < 1 / band else "cannot tell"
    word = "same" if 1 / band < low and high < band else word
    ideal = value / max(devices, 1)
    least = least_rounds(CONFIDENCE)
    if isinstance(report["predicted"], Prediction):  # the capstone's own; its file has the times
        yield bool(late := report["predicted"].fault()), late
    yield (
        _moment(report, "predicted_at") >= _moment(report, "measured_at"),
        "The prediction is not older than the measurement: it was not predicted. Predict again, "
        "then measure again.",
    )
    yield not rounds >= least, f"{rounds:g} rounds are too few for an interval: {least} or more."
    yield (
        not math.isclose(efficiency, ideal, rel_tol=0.02),
        f"efficiency is speed-up / devices, {ideal:.3g} here, not {efficiency:g}.",
    )
    if isinstance(text := report["difference"], str):  # another precision: no equal weights
        yield (
            len(re.findall(r"\d+(?:\.\d+)?", text)) < 2 or not re.search("accura|loss", text),
            "difference, as a sentence, needs the accuracy (or the loss) of both programs.",
        )
    else:
        yield (
            not 0 <= _number(report, "difference") <= 1e-5,
            "difference must be from 0 to 1e-5. If the results cannot be equal, write a sentence: "
            "why, and the accuracy of both.",
        )
    yield (
        str(report["verdict"]).strip().casefold() != word,
        f"The interval from {low:g} to {high:g} does not say {report['verdict']!r}, but {word!r}.",
    )
    inside = low <= predicted <= high
    yield (
        str(report["inside"]) != str(inside),
        f"inside must be True or False: {predicted:g} is{' not' * (not inside)} in the interval "
        f"from {low:g} to {high:g}.",
    )
    for name in ("question", "explanation"):
        different = {*re.findall(r"\w{2,}", str(report[name]).casefold())}
        yield len(different) < 5, f"{name} must be a sentence of at least five different words."
    yield not str(report["question"]).strip().endswith("?"), "question must end with a ?."
    yield (
        not _QUANTITY.search(str(report["explanation"])),
        "explanation needs a number with its unit, such as 31 %.",
    )


TASKS = {
    "27.pays": function_task(
        "Write my_rule(compute, nbytes, ranks, latency, bandwidth): True if a device computes for "
        "at least half of the step. The step is compute seconds and then a ring all-reduce of "
        "nbytes of gradients, without overlap.",
        _RULES,
        (
            "2 (n - 1) messages, and 2 (n - 1) / n of the bytes.",
            "Half of the step: compute ≥ all-reduce.",
        ),
        """
def my_rule(compute, nbytes, ranks, latency, bandwidth):
    steps = 2 * (ranks - 1)
    all_reduce = steps * latency + steps / ranks * nbytes / bandwidth
    return compute >= all_reduce
""",
        "A long step or few bytes: data parallelism pays. The number of ranks hardly matters for "
        "the bytes, but it does for the latency.",
        slips=[
            (">=", "<", "It must be True where computing takes at least half."),
            ("steps * latency + ", "", "Each of the 2 (n - 1) messages has a latency."),
            ("steps / ranks", "2", "A rank sends 2 (n - 1) / n of the bytes."),
        ],
    ),
    "27.largest_batch": function_task(
        "Write my_largest_batch(parameters, per_parameter, example, memory): the largest batch of "
        "a device. per_parameter are the bytes of state of each parameter, example the bytes of "
        "each example with its activations. Nine tenths of the memory are usable. All are whole "
        "numbers; return 0 if no example fits.",
        [
            *((25_600_000, 16, 90_602_112, 16_000_000_000), (101_770, 16, 4_200, 16_000_000_000)),
            *((10, 1, 10, 100), (10, 1, 80, 100), (10, 1, 81, 100), (50, 2, 10, 100)),
        ],
        ("What is left for examples, after the state?", "// rounds down; max(0, …) ends at 0."),
        """
def my_largest_batch(parameters, per_parameter, example, memory):
    left = memory * 9 // 10 - parameters * per_parameter
    return max(0, left // example)
""",
        "A batch that fits may learn worse: a larger one needs another learning rate (lecture 04).",
        slips=[
            ("memory * 9 // 10", "memory", "A tenth of the memory is not usable."),
            (" - parameters * per_parameter", "", "The state takes memory, too."),
            ("max(0, left // example)", "left // example", "Return 0 if no example fits."),
        ],
    ),
    "27.bytes_per_parameter": Task(
        "6.74 billion parameters, sharded over four devices of 24 GB (nine tenths usable). One "
        "example has 0.54 GB of activations on each. At most how many bytes of state per "
        "parameter fit?",
        number(12.5, "", within=0.005),
        (
            "How many bytes are left on a device for its quarter of the state?",
            "(21.6 - 0.54) GB × 4 / 6.74 billion.",
        ),
        """
left = 0.9 * 24e9 - 0.54e9
answer = 4 * left / 6.74e9
""",
        "16 do not fit; 12 do, with 16-bit weights and no float32 copy. That is why the format of "
        "numbers is the first thing to ask for.",
        slips={13.92: "Nine tenths are usable.", 3.12: "Four devices share the state."},
    ),
    "27.threshold": Task(
        "Write my_threshold(decide, low, high): decide(x) gives one answer for all x below an "
        "unknown limit, and another from there on. Find the limit between low and high (both > 0) "
        "to 1 %, with at most 200 calls of decide.",
        function(_examine_threshold),
        (
            "Compare decide(middle) with decide(low): in which half is the limit?",
            "Repeat while high / low > 1.001. From 1e-9 to 1e3, the arithmetic mean needs more "
            "turns than the geometric mean, (low * high) ** 0.5.",
        ),
        """
def my_threshold(decide, low, high):
    first = decide(low)
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        if decide(middle) == first:
            low = middle
        else:
            high = middle
    return high
""",
        "Bisection. On the logarithmic scale it needs as many turns for 1 to 10 as for 1e9 to "
        "1e10.",
        difficulty=2,
    ),
    "27.layout": Task(
        "Write my_layout(model, machines, per_machine, device_memory): return layout[replica]"
        "[stage], a list of the ranks of a tensor group. Rank r is in machine r // per_machine; no "
        "tensor group leaves its machine; every rank occurs once; each stage fits into 0.9 of the "
        "memory. Of all that fit, take a division with as many replicas as possible.",
        function(_examine_layout, seconds=60),
        (
            "memory.fullest(memory.transformer(**model, tensor=…, pipeline=…, data=…, zero=1, "
            'sequence_parallel=True, recompute="selective")).total: what the fullest device holds.',
            "Try tensor × pipeline = 1, 2, 3, … with tensor dividing per_machine and the heads, "
            "and pipeline dividing the layers.",
            "Number the ranks of a tensor group first, then the stages, then the replicas.",
        ),
        """
from labkit import memory

def my_layout(model, machines, per_machine, device_memory):
    ranks = machines * per_machine
    for group in range(1, ranks + 1):
        for tensor in range(min(group, per_machine), 0, -1):
            pipeline = group // tensor
            if ranks % group or group % tensor or per_machine % tensor:
                continue
            if model["heads"] % tensor or model["layers"] % pipeline:
                continue
            step = memory.fullest(memory.transformer(
                **model, tensor=tensor, pipeline=pipeline, data=ranks // group, zero=1,
                sequence_parallel=True, recompute="selective"))
            if step.total <= 0.9 * device_memory:
                return [[list(range(first, first + tensor))
                         for first in range(start, start + group, tensor)]
                        for start in range(0, ranks, group)]
""",
        "As lecture 20 numbers ranks: neighbours share the layers, and the fastest links.",
        difficulty=3,
    ),
    "27.report": Task(
        f"Fill in the report: a dict with {', '.join(REPORT)}. measured is (speed-up, low, high), "
        'verdict "faster", "slower", "same" or "cannot tell" as labkit.compare says it, inside '
        "True or False; difference is that of the weights, or a sentence if they cannot be equal. "
        "predicted_at and measured_at are the moments, of time.time() or as 2026-11-24 14:05.",
        _check_report,
        (
            "A verdict needs an interval that does not contain 1.",
            "efficiency is the speed-up divided by the devices.",
        ),
        """
report = {
    "question": "Do two replicas train the dense model faster than one?",
    "devices": 2, "predicted": 1.8, "predicted_at": "2026-11-24 14:05",
    "measured": (0.84, 0.80, 0.88), "measured_at": "2026-11-24 14:20", "rounds": 10,
    "efficiency": 0.42, "difference": 1.2e-7, "verdict": "slower", "inside": False,
    "explanation": "The gradient reduction takes 40 % of the step; I expected 5 %.",
}
""",
        "The numbers and the words agree with each other. Whether the question is good and the "
        "explanation right, a reader must judge.",
        difficulty=2,
    ),
}
