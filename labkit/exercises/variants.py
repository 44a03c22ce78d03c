"""Numbers of one's own: whoever has said a key finds other numbers in some tasks than a neighbour.

>>> from labkit.exercises import tasks
>>> print(personal("01.adam_memory", tasks()["01.adam_memory"], "ada").question)
A model has 77 billion parameters. How many GB do weights, gradients and Adam's two moments take, \
all in float32?
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from types import EllipsisType
from typing import Any

from labkit.exercises.judges.answers import number
from labkit.exercises.task import Task
from labkit.kinds import LabError

VARIABLE = "LABKIT_STUDENT"


@dataclass(frozen=True)
class Variant:
    """What each number may be, the answer, and what stands in the task's texts in place of what."""

    numbers: Mapping[str, Sequence[float]]
    answer: Callable[..., float]
    texts: Mapping[str, str]


def student(key: str | EllipsisType) -> str:
    """Say who you are: tasks with numbers of your own then have yours, until the kernel ends."""
    if isinstance(key, EllipsisType):
        return "No key yet: all tasks have the numbers of the lecture."
    if not key.strip():
        raise LabError(f"student() needs your key in quotes, got {key!r}.")
    os.environ[VARIABLE] = key
    return f"The numbers of {len(VARIANTS)} tasks are those of {key.strip()!r} now."


def personal(name: str, task: Task, key: str | None = None) -> Task:
    """The task with the numbers of a key, by default of this process; without a key as it is."""
    key = (os.environ.get(VARIABLE, "") if key is None else key).strip().casefold()
    if name not in VARIANTS or not key:
        return task
    variant, numbers = VARIANTS[name], drawn(name, key)

    def with_them(text: str) -> str:
        pattern = "|".join(rf"(?<![\d.,_]){re.escape(old)}" for old in variant.texts)
        return re.sub(pattern, lambda old: variant.texts[old[0]].format(**numbers), text)

    judge: Any = task.judge  # of `number`, which keeps unit and tolerance
    same = dict(zip(judge.__code__.co_freevars, judge.__closure__, strict=True))
    unit, within = same["unit"].cell_contents, same["within"].cell_contents
    return replace(
        task,
        question=with_them(task.question),
        judge=number(variant.answer(**numbers), unit, within=within),
        hints=tuple(map(with_them, task.hints)),
        solution=with_them(task.solution),
        slips={},  # they are of the lecture's numbers
        why="" if re.search(r"\d", task.why) else task.why,
    )


def drawn(name: str, key: str) -> dict[str, float]:
    """The numbers of a key in a task."""
    return {
        one: values[int(sha256(f"{name} {one} {key}".encode()).hexdigest(), 16) % len(values)]
        for one, values in VARIANTS[name].numbers.items()
    }


_MANY = range(200_000, 4_000_000)
VARIANTS = {
    "01.bytes_per_step": Variant(
        {"p": _MANY}, lambda p: 4 * p, {"1,199,882": "{p:,}", "1_199_882": "{p}"},
    ),
    "01.adam_memory": Variant(
        {"p": range(2, 200)}, lambda p: 16 * p,
        {"3 billion": "{p} billion", "3e9": "{p}e9"},
    ),
    "01.link_seconds": Variant(
        {"p": range(50, 2000), "b": (0.125, 0.25, 1.25, 2.5, 3.125, 12.5)},
        lambda p, b: 4e6 * p / (b * 1e9),
        {"350": "{p}", "0.125": "{b}", "  # bytes: 1.4 GB": "  # bytes"},
    ),
    "04.gradient_bytes": Variant(
        {"p": _MANY, "s": range(200, 2000, 50)}, lambda p, s: 4e-6 * p * s,
        {"101,770": "{p:,}", "101_770": "{p}", "600": "{s}"},
    ),
    "04.efficiency": Variant(
        {"n": range(4, 13), "s": [one / 100 for one in range(210, 390)]}, lambda n, s: 100 * s / n,
        {"Four": "{n}", "2.8 / 4": "{s} / {n}", "2.8": "{s}"},
    ),
    "05.cpu_seconds": Variant(
        {"c": range(3, 300), "w": range(2, 20)}, lambda c, w: 2 * c,
        {"3 s": "{c} s", "4 s": "{w} s", "2 * 3": "2 * {c}"},
    ),
    "06.kilowatt_hours": Variant(
        {"w": range(900, 6000, 5), "h": range(20, 400)}, lambda w, h: w * h / 1000,
        {"1,515": "{w:,}", "1515 * 84": "{w} * {h}", "84 hours": "{h} hours"},
    ),
    "06.images_per_joule": Variant(
        {"s": range(5, 60), "w": range(120, 700, 5)}, lambda s, w: 60_000 / (s * w),
        {"12 s": "{s} s", "250 W": "{w} W", "250 * 12": "{w} * {s}"},
    ),
    "08.star_steps": Variant({"n": range(10, 500)}, lambda n: n - 1, {"32": "{n}"}),
    "09.all_to_all_messages": Variant(
        {"n": range(5, 300)}, lambda n: n * (n - 1), {"16": "{n}"},
    ),
    "10.ring_bytes": Variant(
        {"n": range(5, 90), "g": range(2, 30)}, lambda n, g: 2 * (n - 1) / n * g,
        {"1 GB": "{g} GB", "100": "{n}", "1 / 100": "{g} / {n}"},
    ),
    "11.buckets": Variant(
        {"n": range(80, 600), "c": range(20, 95, 5), "b": range(2, 12)},
        lambda n, c, b: (n - b) * c / 1000,
        {"161": "{n}", "50 µs": "{c} µs", "0.050": "0.0{c}", "4 buckets": "{b} buckets",
         "4  #": "{b}  #"},
    ),
    "15.failures": Variant(
        {"d": range(400, 3000), "n": range(100, 5000, 10)}, lambda d, n: 24 * d / n,
        {"1,095": "{d:,}", "1095": "{d}", "500": "{n}"},
    ),
    "17.gpu_hours": Variant(
        {"n": range(2, 40), "h": [one / 2 for one in range(3, 60)]}, lambda n, h: 4 * n * h,
        {"2 nodes": "{n} nodes", "3.5": "{h}", "2 * 4": "{n} * 4"},
    ),
    "18.bubble_share": Variant(
        {"p": range(3, 33), "m": range(20, 200)}, lambda p, m: 100 * (p - 1) / (m + p - 1),
        {"8 stages": "{p} stages", "24": "{m}", "8 - 1": "{p} - 1"},
    ),
    "21.zero_2": Variant(
        {"p": [one / 2 for one in range(3, 60)], "n": (8, 16, 24, 32, 48, 64)},
        lambda p, n: 2 * p + 14 * p / n,
        {"7.5": "{p}", "16": "{n}"},
    ),
    "25.bytes": Variant(
        {"r": range(10, 200, 5), "c": range(5, 60)},
        lambda r, c: 2 * c * r * 1_663_370 * 4 / 1e6,
        {"20 rounds": "{r} rounds", "10 clients": "{c} clients", "10 models": "{c} models",
         "10 * 20": "{c} * {r}"},
    ),
}  # fmt: skip
