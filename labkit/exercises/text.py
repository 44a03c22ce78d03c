r"""Tasks as text: a file of Markdown says question, judge, hints, worked solution, slips, and why.

>>> tasks = load('''
... ## my_double
...
... Write my_double(x).
... 1. Add x to itself.
... ```python
... def my_double(x):
...     return 2 * x
... ```
... ```pycon
... >>> my_double(3)
... 6
... ```
... - `2 *` -> `2 +` Multiply.
...
... Twice.
... ''')
>>> tasks["my_double"].check(lambda x: x + 2).text.partition(" right")[0]
'Called with x=3 it returned 5;'

How a task is judged is one expression, with the names of `judge_names` and of the lecture's own
judges: between backticks below the heading, or in a block after statements as
`p = yours(3, range(9))`.
Then {p} stands for the number everywhere, and a student with a key has another one. A slip is a
wrong answer, or a change of the solution: it is told to whoever ends with the same, and a test
shows that it is refused with these words. A judge that is given `told` says the words of the first
condition that holds, with facts of what the answer did: + `steps > 3` it takes {steps} steps.
"""

from __future__ import annotations

import ast
import doctest
import linecache
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np

from labkit.exercises import judge_names
from labkit.exercises.judges.answers import same_as
from labkit.exercises.old_names import before
from labkit.exercises.task import Task, Wrong
from labkit.kinds import LabError

PART = re.compile(
    r"^```(?P<info>[^\n]*)\n(?P<code>(?s:.*?))^```$"
    r"|^\d\. (?P<hint>.+(?:\n {3}.+)*)"
    r"|^- (?P<slip>.+(?:\n(?: {2}.*)?)*)"
    r"|^\+ (?P<condition>.+(?:\n {2}.*)*)"
    r"|^(?P<prose>\S.*(?:\n(?!```|\d\. |[-+] )\S.*)*)",
    re.MULTILINE,
)
HEAD = re.compile(
    r"(?P<name>\w+)(?: · objective (?P<objective>\d+))?(?: · difficulty (?P<difficulty>[123]))?"
    r"(?: · (?P<kept>\d+) lines? given)?(?: · needs (?P<environment>\w+))?"
)
CHANGE = re.compile(r"`(.+?)` (?:->|→) `(.*?)`(.+)", re.DOTALL)
DIFF = re.compile(r"(.+?)\s+```diff\n(.*?)```", re.DOTALL)
VALUE = re.compile(r"`(.+?)`\s+(.+)", re.DOTALL)


@dataclass(frozen=True)
class Text:
    """A task as it is written; `place` says where, for whoever has written it wrongly."""

    name: str
    place: str
    head: dict[str, str]
    prose: list[str] = field(default_factory=list)
    """How it is judged if that is one line, the question, and why."""
    hints: list[str] = field(default_factory=list)
    code: dict[str, str] = field(default_factory=dict)
    """By what stands after the backticks: "python" is the solution."""
    slips: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    shared: str = ""
    """Code for the judges of all tasks of a file, above the first of them."""

    def task(self, key: str = "") -> Task:
        """The task, with the numbers of whoever has this key."""
        try:
            return self._task(self.names(), key)
        except Exception as fault:
            raise LabError(f"{self.place}: {type(fault).__name__}: {fault}") from fault

    def names(self) -> dict[str, Any]:
        """What the judge of this task may use."""
        names = {**vars(judge_names), "math": math, "np": np}
        file = f"<{self.place.partition(':')[0]}>"  # so that an error can show its line
        linecache.cache[file] = len(self.shared), None, self.shared.splitlines(keepends=True), file
        exec(compile(self.shared, file, "exec"), names)  # noqa: S102 (as trusted as the solution)
        return names

    def session(self, names: dict[str, Any]) -> Iterator[tuple[list[tuple[Any, ...]], str]]:
        """The calls of each example, by their arguments, and the result that stands below it."""
        calls: list[tuple[Any, ...]] = []
        function = re.findall(r"^def (\w+)", self.code["python"], re.MULTILINE)[-1]
        space = {**names, function: lambda *case: calls.append(case)}
        for example in doctest.DocTestParser().get_examples(self.code["pycon"]):
            exec(example.source, space)  # noqa: S102
            yield calls[:], example.want
            calls.clear()

    @property
    def is_personal(self) -> bool:
        """Whether a student with a key has numbers of their own."""
        return "yours(" in self.code.get("python judge", "")

    def _task(self, names: dict[str, Any], key: str) -> Task:
        *given, last = ast.parse(self.code.get("python judge", "results()")).body
        numbers: dict[str, Any] = {}
        for one in given:
            drawn_by = ast.unparse(one.targets[0]) if isinstance(one, ast.Assign) else ""
            names["yours"] = partial(yours, f"{before(self.name)} {drawn_by} {key}" if key else "")
            exec(ast.unparse(one), names)  # noqa: S102
            numbers |= {drawn_by: names[drawn_by]} if drawn_by else {}

        def filled(text: str) -> str:
            known = "|".join(numbers) or "$"
            return re.sub(rf"\{{({known})(:\S*?)?\}}", lambda a: a[0].format(**numbers), text)

        names["told"] = _told(map(filled, self.conditions), names)
        solution = filled(self.code["python"])
        slips = dict(_slip(filled(item), solution) for item in self.slips)
        if self.code.get("pycon"):
            calls = [case for found, _ in self.session(names) for case in found]
            changes = [(*change, words) for change, words in slips.items()]
            names["results"] = partial(same_as, solution, calls, changes)
        return Task(
            filled(self.prose[0]),
            eval(ast.unparse(last), names),  # noqa: S307
            tuple(map(filled, self.hints)),
            solution.strip(),
            filled(self.prose[1]),
            int(self.head["difficulty"] or 1),
            given=self.code.get("python given", ""),
            kept=int(self.head["kept"] or 0),
            environment=self.head["environment"] or "",
            slips=slips,
            name=self.name,
        )


def yours(drawn_by: str, lectures: float, others: Sequence[float]) -> float:
    """The lecture's number, or, for a student with a key, one of the others."""
    at = int(sha256(drawn_by.encode()).hexdigest(), 16)
    return others[at % len(others)] if drawn_by else lectures


def _told(conditions: Iterable[str], names: dict[str, Any]) -> Callable[..., None]:
    """What says the words of the first condition that holds; of all, if they are joined."""
    said_if = []
    for item in conditions:
        if not (found := VALUE.fullmatch(item.strip())):
            raise LabError(f"a condition is `condition` words, not {item!r}.")
        said_if.append((compile(f"({found[1]})", found[1], "eval"), " ".join(found[2].split())))

    def told(shown: Any = None, *, before: str = "", joined: str = "", **facts: Any) -> None:
        known = {**names, **facts}
        said = (WORDS.vformat(text, (), known) for one, text in said_if if eval(one, known))  # noqa: S307
        if text := joined.join(said) if joined else next(said, ""):
            raise Wrong(f"{before}{text}", shown)

    return told


class _Words(Formatter):
    """Words with expressions, such as {max(bytes_sent):,}."""

    def get_field(self, name: str, _: Any, known: Any) -> Any:
        return eval(name, known), name  # noqa: S307


WORDS = _Words()


def _slip(item: str, solution: str) -> tuple[Any, str]:
    """A wrong answer, or a change (old, new) of the solution, and what is said to it."""
    if found := DIFF.fullmatch(item.strip()):
        lines = [re.sub("^ {2}", "", line) for line in found[2].splitlines()]
        old, new = ("".join(f"{x[1:]}\n" for x in lines if x[:1] in (s, " ")) for s in "-+")
        words = found[1]
    elif found := CHANGE.fullmatch(item.strip()):
        old, new, words = found.groups()
    elif found := VALUE.fullmatch(item.strip()):
        return eval(found[1], dict(vars(math))), " ".join(found[2].split())  # noqa: S307
    else:
        raise LabError(f"a slip is `wrong` words, or `old` -> `new` words, not {item!r}.")
    if old not in solution:
        raise LabError(f"{old!r} is not in the solution.")
    if "def " in solution:
        return (old, new), " ".join(words.split())
    space: dict[str, Any] = {}
    exec(solution.replace(old, new), space)  # noqa: S102
    return space.popitem()[1], " ".join(words.split())


def load(source: str | Path, key: str = "") -> dict[str, Task]:
    """The tasks of a file, or of a text, by their names."""
    return {one.name: one.task(key) for one in read(source)}


def read(source: str | Path) -> list[Text]:
    """What a file says, or a text; what is wrong with it is named by its line."""
    is_text = isinstance(source, str) and "\n" in source
    try:
        text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise LabError(f"The tasks of {source} cannot be read: {fault}.") from fault
    file = "line " if is_text else f"{Path(source).name}:"
    title, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    number = re.search(r"^# (\w+) · ", title, re.MULTILINE)
    shared = re.search(r"```python\n(.*?)```", title, re.DOTALL)
    line, found = title.count("\n") + 1, []
    for part in parts:
        one = _text(part, f"{number[1]}." if number else "", f"{file}{line}")
        found.append(replace(one, shared=shared[1] if shared else ""))
        line += part.count("\n")
    if not found:
        raise LabError(f"{file}1 and below have no task: each begins with a line `## name`.")
    return found


def _text(part: str, lecture: str, place: str) -> Text:
    head, _, body = part.partition("\n")
    named = HEAD.fullmatch(head.strip())
    one = Text(
        f"{lecture}{named['name'] if named else head}", place, named.groupdict() if named else {}
    )
    for piece in PART.finditer(body):
        if piece["code"] is not None:
            one.code[piece["info"]] = piece["code"]
        elif piece["slip"] or piece["condition"]:
            into = one.slips if piece["slip"] else one.conditions
            into.append(piece["slip"] or piece["condition"])
        else:
            into = one.hints if piece["hint"] else one.prose
            into.append(" ".join((piece["hint"] or piece["prose"]).split()))
    if len(one.prose) == 3 and (judge := re.fullmatch("`([^`]+)`", one.prose[0])):
        one.code["python judge"] = judge[1]
        del one.prose[0]
    if named is None or len(one.prose) != 2 or not one.hints or "python" not in one.code:
        raise LabError(
            f"{place}: a task is `## name`, how it is judged between backticks (or a session after "
            "```pycon), a question, hints (1., 2., 3.), the solution after ```python, slips (-), "
            "and why it is right."
        )
    return one
