"""`labkit grade FOLDER`: judge what students handed in, each answer in a process of its own.

Of a submission only the answers count: a test cell in it has no effect. The process of an answer
runs the cells that it needs, on a disk without the lecturer's files (`sandbox.py`). Only data
leave it (`border.py`). The verdict is that of the course's own task, made in a process that has run
no student's code. What can only be watched where the answer runs, such as TensorFlow's training, is
watched there; the record of it, which is data, too, is judged here.
"""

import ast
import csv
import io
import json
import math
import os
import re
import secrets
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from labkit import time_limit
from labkit.exercises import Task, Wrong, personal, tasks
from labkit.exercises.judges.answers import examined
from labkit.exercises.judges.serial import CLOSE
from labkit.hardware.machine import usable_cores
from labkit.kinds import LabError
from labkit.kit import answer
from labkit.kit.border import Ended, JudgeEnd
from labkit.kit.feedback import Result, Submission, page
from labkit.kit.release import NOTEBOOKS, Asked, asked, questions
from labkit.kit.sandbox import Template, limit_memory
from labkit.plain import atomic_write, write_text
from labkit.publish import chosen
from labkit.time_limit import slowdown

# How Moodle and Canvas name what a lecturer downloads.
MOODLE = re.compile(r"(?P<student>.+)_(?P<number>\d+)_assignsubmission_.*")
CANVAS = re.compile(r"(?P<student>[^_]+)_(?:LATE_)?(?P<number>\d+)_\d+_.*")
LARGEST = 64 * 2**20  # bytes of a notebook
Who = tuple[str, str]
Records = dict[str, Any]  # by task


def main(
    folder: Path, names: Sequence[str] = (), *, class_list: Path | None = None,
    personal: bool = False, anonymous: bool = False, seconds: float = 60.0, protected: bool = True,
) -> int:  # fmt: skip
    """Grade all submissions in a folder, and write tables and a page for each student."""
    import nbformat

    if not folder.is_dir():
        raise LabError(f"{str(folder)!r} is not a folder. Give the one with the submissions.")
    folder, rows = folder.resolve(), _class(class_list)
    files = _files(folder)
    paths = [
        path for path in chosen(names, NOTEBOOKS)
        if names
        or any(_is_of(path.stem, file, folder) for those in files.values() for file in those)
    ]  # fmt: skip
    if not paths or not files:
        raise LabError(f"No notebook of the course was found in {folder}, in a folder a student.")
    if len(paths) > 1 and not names:
        raise LabError(
            f"In {folder} are {', '.join(path.stem for path in paths)}, and the points of each "
            f"count for every student. Name those that count, such as `labkit grade "
            f"FOLDER {paths[0].stem.partition('_')[0]}`."
        )
    course = {path.stem: nbformat.read(path, as_version=4) for path in paths}
    asks = {stem: {one.task: one for one in questions(read)} for stem, read in course.items()}
    waiting = [
        Submission(*who, stem, [str(f) for f in those if _is_of(stem, f, folder)], asks[stem])
        for who, those in files.items()
        for stem in course
    ]
    to = folder.with_name(f"{folder.name}-graded")
    to.mkdir(exist_ok=True)
    tables = _Tables(to, [*files], rows, anonymous=anonymous)
    imports = _imports(course.values())
    with Template(imports, [folder, to], protected=protected) as template:
        records = _solved(asks, imports, template, seconds * slowdown())
        for one in _graded(waiting, template, seconds, records, personal=personal):
            print(f"{one.student}, {one.notebook}: {one.points} of {one.most}", flush=True)
            tables.add(one)
    tables.write()
    print(f"{to}: the tables, and a page for each student")
    return 0


def _files(folder: Path) -> dict[Who, list[Path]]:
    """Returns the notebooks of each student, by name and number in Moodle or Canvas."""
    found: dict[Who, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        inside = entry.is_dir() and not entry.is_symlink()
        if _is_ignored(entry.name) or not (inside or entry.suffix == ".ipynb"):
            continue
        name = _name(entry if inside else entry.with_suffix(""))
        named = MOODLE.fullmatch(name) or CANVAS.fullmatch(name)
        who = (named["student"], named["number"]) if named else (name, "")
        mine, waiting = found.setdefault(who, []), [entry]
        while waiting:
            with suppress(OSError):  # a folder that is closed, or too deep
                one = waiting.pop()
                if one.is_dir() and not one.is_symlink():
                    waiting += (one for one in one.iterdir() if not _is_ignored(one.name))
                elif one.suffix == ".ipynb":
                    mine.append(one)
    return found


def _name(file: Path) -> str:
    """Returns a name that every file and terminal can hold: a name need not be text."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", lambda one: ascii(one[0])[1:-1], file.name)


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _is_of(stem: str, file: Path, folder: Path) -> bool:
    return stem in str(file.relative_to(folder))


def _imports(course: Iterable[Any]) -> list[str]:
    """Returns what the notebooks of the course import, for the template to import once."""
    found = dict[str, None]()
    for cell in (cell for notebook in course for cell in notebook.cells):
        with suppress(SyntaxError):
            for statement in ast.parse(cell.source).body if cell.cell_type == "code" else ():
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    found[ast.unparse(statement)] = None
    return [*found]


# The judges: a process for each submission.


@dataclass
class _Judge:
    """A process that reads and judges a submission."""

    pid: int
    pipe: Connection
    heard: float = field(default_factory=time.monotonic)
    judging: str = ""

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pipe.close()


def _graded(
    submissions: list[Submission],
    template: Template,
    seconds: float,
    records: Records,
    *,
    personal: bool,
) -> Iterator[Submission]:
    """Yields graded submissions, judged in parallel. A task may end its judge: another goes on."""
    waiting, running = submissions[::-1], dict[Connection, tuple[Submission, _Judge]]()
    most = 2 * len(usable_cores())  # a judge and its answer take turns
    try:
        while waiting or running:
            while waiting and len(running) < most:
                one = waiting.pop()
                judge = _start(one, template, seconds, records, personal=personal)
                running[judge.pipe] = one, judge
            for pipe, (one, judge) in [*running.items()]:
                said: Any = {}
                while said is not None and pipe.poll():
                    said = _hear(one, judge)
                late = time.monotonic() - judge.heard > (3 * seconds + 60) * slowdown()
                if said is not None and not late:
                    continue
                judge.end()
                del running[pipe]
                if judge.judging and judge.judging in one.left():
                    one.results[judge.judging] = Result("ended", "Its judge has ended.")
                    waiting.append(one)
                    continue
                if not one.is_read:
                    one.notes.append("The notebook cannot be read.")
                yield one
            wait([*running], timeout=1.0)
    finally:
        for _, judge in running.values():
            judge.end()


def _start(
    one: Submission, template: Template, seconds: float, records: Records, *, personal: bool
) -> _Judge:
    ours, theirs = Pipe(duplex=False)
    sys.stdout.flush()
    if pid := os.fork():
        theirs.close()
        return _Judge(pid, ours)
    try:  # whatever happens, a fork must never go on as its parent would
        ours.close()
        limit_memory()
        os.environ["MPI4PY_RC_INITIALIZE"] = "0"  # of mpi4py a judge needs the names alone
        mine = time_limit.without_core
        time_limit.without_core = lambda thread: mine(thread) + JudgeEnd.without_core
        for number in (1, 2):  # what libraries say of a damaged notebook, they say in its words
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        key = one.student if personal else ""
        for message in _messages(one, template, seconds, key, records):
            theirs.send_bytes(json.dumps(message).encode())
    finally:
        os._exit(0)


def _hear(one: Submission, judge: _Judge) -> Any:
    """Note and return what a judge says, or None if it has ended."""
    try:
        said = json.loads(judge.pipe.recv_bytes())
    except (EOFError, OSError):
        return None
    judge.heard = time.monotonic()
    match said:
        case ["read", cells, answers, notes]:
            one.cells, one.answers, one.notes, one.is_read = cells, answers, notes, True
        case ["judging", task]:
            judge.judging = task
        case ["judged", task, state, text]:
            one.results[task] = Result(state, text)
    return said


def _messages(
    one: Submission, template: Template, seconds: float, key: str, records: Records
) -> Iterator[list[Any]]:
    """Yields what a judge says."""
    _read(one)
    yield ["read", one.cells, one.answers, one.notes]
    for name in one.left():
        yield ["judging", name]
        task = personal(name, key)
        yield ["judged", name, *_judged(one, name, task, template, seconds * slowdown(), records)]


def _solved(
    asks: Mapping[str, Mapping[str, Asked]], imports: list[str], template: Template, seconds: float
) -> Records:
    """Returns records of worked solutions, for tasks that are examined in the answer's process.

    Such a verdict is believed if the answer leaves the same record.
    """
    found: Records = {}
    for one in chain(*(those.values() for those in asks.values())):
        if watched := getattr(tasks()[one.task].judge, "watched", None):
            cells = ["\n".join(imports), tasks()[one.task].solution]
            mine = answer.needed(cells, one.task), one.answer
            what = examined.__module__, examined.__qualname__, *watched
            with suppress(Ended, LabError), _process(template, seconds, mine, mine) as end:
                found[one.task] = end.call(0, "observe", mine, *what)
    return found


def _alike(found: Any, truth: Any, close: float) -> bool:
    """Whether two records have the same weights and numbers, as right programs do."""
    import numpy as np

    if type(found) is list is type(truth):
        return len(found) == len(truth) and all(map(_alike, found, truth, repeat(close)))
    if type(found) is np.ndarray is type(truth):
        return found.shape == truth.shape and bool(np.allclose(found, truth, rtol=0, atol=close))
    return type(found) is float is type(truth) and math.isclose(
        found, truth, rel_tol=1e-3, abs_tol=1e-4
    )


def _judged(
    one: Submission, name: str, task: Task, template: Template, seconds: float, records: Records
) -> tuple[str, str]:
    """Returns the state of an answer, and what is said about it."""
    cells = answer.needed(one.cells[: one.answers[name] + 1], name)
    mine = cells, one.asked[name].answer
    answer.remember(cells)

    def beside(observe: Callable[..., Any], *args: Any) -> Any:
        """Observe the answer in another process, which computes it when it is called."""
        with _process(template, seconds, mine, mine) as end:
            what = observe.__module__, observe.__qualname__, *args
            found = end.call(0, "observe", mine, *what)
        close = 2 * getattr(task.judge, "close", CLOSE)  # of the serial program
        if observe is examined and not _alike(found, truth := records.get(name), close):
            if truth is None:
                raise Ended("was not compared: the worked solution could not be run here")
            raise Wrong(
                "It trains, but its weights or numbers are not those of the serial program. "
                "Check it in the notebook: the card names the usual mistakes."
            )
        return found

    def others(count: int) -> list[JudgeEnd]:
        """The same answer in further processes, one for each rank of a program."""
        while len(ends) < count:
            ends.append(stack.enter_context(_process(template, seconds, mine)))
            ends[-1].call(0, "load", *mine)
        return ends[:count]

    ends: list[JudgeEnd] = []
    try:
        with ExitStack() as stack:
            end = stack.enter_context(_process(template, seconds, mine))
            end.beside, end.others = beside, others
            try:
                given = end.call(0, "load", *mine)
            except (Exception, SystemExit) as fault:  # noqa: BLE001 (whatever a cell raises)
                return "wrong", _shown(f"The cell raised {type(fault).__name__}: {fault}")
            outcome = task.check(given)
            return outcome.state, _shown(outcome.text)
    except Ended as why:
        return "ended", f"Its process {why}."


@contextmanager
def _process(
    template: Template, seconds: float, mine: tuple[answer.Cells, str], observes: Any = ()
) -> Iterator[JudgeEnd]:
    """Start a process for an answer. Ended says which limit it has exceeded."""
    pipe, exceeded = template.fork(source for _, source in mine[0])
    try:
        yield JudgeEnd(pipe, seconds, observes)
    except Ended as why:
        pipe.close()
        with os.fdopen(exceeded, encoding="utf-8", closefd=False) as text:
            raise Ended(text.read() or f"{why}") from None
    finally:
        pipe.close()
        os.close(exceeded)


def _read(found: Submission) -> None:
    """Read the cells of a submitted notebook, and find the answers in them."""
    import nbformat

    stem = f"{found.notebook}.ipynb"
    files = sorted(map(Path, found.files), key=lambda file: (file.name == stem, str(file)))
    if not files:
        found.notes.append("This notebook was not handed in.")
        return
    *others, file = files
    if others:
        left = ", ".join(map(_name, others[:5])) + " …" * (len(others) > 5)
        found.notes.append(f"Of several notebooks {_name(file)} is judged, and not {left}.")
    try:
        notebook = nbformat.reads(_text(file), as_version=4)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        names = [str(cell.metadata.get("nbgrader", {}).get("grade_id", "")) for cell in cells]
        sources = [_python(_shown(cell.source)) for cell in cells]
    except Exception as fault:  # noqa: BLE001 (nbformat lets out whatever a damaged file causes)
        why = f": {fault}" if isinstance(fault, LabError) else ""
        found.notes.append(f"{_name(file)} cannot be read: {type(fault).__name__}{why}.")
        return
    by_name = {one.name: one for one in found.asked.values()}
    tests = {}
    for index, name in enumerate(names):
        if one := by_name.get(name):
            tests[one.task], sources[index] = sources[index], ""
        elif one := by_name.get(name.removesuffix("-answer")):
            found.answers[one.task] = index
        elif (one := asked(sources[index])) and one.name in by_name:  # the course's notebook
            found.answers[one.task], tests[one.task], sources[index] = index, one.test, one.above
    found.cells = sources
    for one in found.asked.values():
        if one.task not in found.answers:
            found.notes.append(f"The answer cell of {one.task} is missing.")
        if (test := tests.get(one.task, "").strip()) != one.test:
            done = "changed" if test else "deleted"
            found.notes.append(f"The test cell of {one.task} was {done}, which has no effect.")


def _python(source: str) -> str:
    """A cell without what only IPython understands: `%time f()`, `!ls`, `files = !ls`, `f?`."""
    with suppress(Exception):  # it may be too deep to be read
        ast.parse(source)
        return source
    for ipython, python in (
        (r"^([ \t]*)%%?time\b[ \t]*", r"\1"),
        (r"^([ \t]*)([%!?].*|[\w.]+\?+[ \t]*)$", r"\1pass"),
        (r"^([ \t]*[\w.]+[ \t]*=[ \t]*)[%!].*", r"\1[]"),
    ):
        source = re.sub(ipython, python, source, flags=re.MULTILINE)
    return source


def _text(file: Path) -> str:
    """A notebook's text: of an ordinary file, neither a link nor something that never ends."""
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(opened, "rb") as source:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise LabError(f"it is no file of at most {LARGEST >> 20} MiB")
        return source.read(LARGEST).decode("utf-8")


def _shown(text: str) -> str:
    """As every file can hold it: an answer may have half a letter."""
    return text.encode("utf-8", "replace").decode()


# The tables.


def _class(file: Path | None) -> list[dict[str, str]]:
    """The rows of a class list: a table that Moodle or Canvas exports."""
    if file is None:
        return []
    try:
        rows = csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines())
        return [{k: v for k, v in row.items() if k and isinstance(v, str)} for row in rows]
    except (OSError, ValueError, csv.Error) as fault:
        raise LabError(f"{str(file)!r} cannot be read as a class list: {fault}.") from None


class _Tables:
    """The page of each student, our table, and those that Moodle and Canvas import."""

    def __init__(
        self, to: Path, students: list[Who], rows: list[dict[str, str]], *, anonymous: bool
    ) -> None:
        self._to, self._rows, self._anonymous = to, rows, anonymous
        self._done: dict[Who, list[Submission]] = {who: [] for who in students}
        shown = {who: " ".join(filter(None, who)) for who in students}
        if anonymous:
            order = secrets.SystemRandom().sample(students, len(students))
            shown = {who: f"student-{number:03}" for number, who in enumerate(order, 1)}
        self._shown, self._pages = shown, dict[Who, str]()
        for who in students:
            stem = re.sub(r"[^\w.-]", "_", shown[who])[:50]
            taken = {one.casefold() for one in self._pages.values()}
            same = (f"{stem}{f'-{n}' * (n > 1)}.html" for n in range(1, len(students) + 1))
            self._pages[who] = next(one for one in same if one.casefold() not in taken)
        if anonymous:
            keys = [{"Key": shown[who], "Student": who[0]} for who in students]
            _table(to / "keys.csv", keys)

    def add(self, one: Submission) -> None:
        """Write what is known now: a run that is interrupted keeps what it has judged."""
        who = one.student, one.number
        self._done[who].append(one)
        write_text(self._to / self._pages[who], page(self._shown[who], self._done[who]))
        _table(self._to / "grades.csv", [self._row(who) for who in self._done if self._done[who]])

    def _row(self, who: Who) -> dict[str, object]:
        mine = self._done[who]
        return {
            "Student": self._shown[who],
            "Points": sum(one.points for one in mine),
            "Of": sum(one.most for one in mine),
            **{task: one.got(task) for one in mine for task in one.asked},
            "Notes": " ".join(note for one in mine for note in one.notes),
        }

    def write(self) -> None:
        """Write the tables for Moodle and Canvas."""
        if self._anonymous:
            return
        moodle, canvas = [], []
        for who in self._done:
            name, number = who
            row = self._row(who)
            called = {name, number, f"Participant {number}"} - {"", "Participant "}
            known = next((one for one in self._rows if called & {*one.values()}), {})
            moodle.append({
                "Identifier": f"Participant {number}" if number else "", "Full name": name,
                "Email address": "", "Grade": row["Points"], "Maximum Grade": row["Of"],
                "Feedback comments": row["Notes"],
            })  # fmt: skip
            canvas.append({
                "Student": name, "ID": number, "SIS User ID": "",
                "SIS Login ID": "" if number else name, "Section": "", "labkit": row["Points"],
            })  # fmt: skip
            for table in (moodle, canvas):
                table[-1] |= {column: known[column] for column in table[-1] if known.get(column)}
        _table(self._to / "moodle.csv", moodle)
        possible = {"Student": "    Points Possible", "labkit": moodle[0]["Maximum Grade"]}
        _table(self._to / "canvas.csv", [dict.fromkeys(canvas[0], "") | possible, *canvas])


def _table(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write a table. No cell begins like a formula, which a spreadsheet would compute."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [*dict.fromkeys(column for row in rows for column in row)])
    writer.writeheader()
    for row in rows:
        writer.writerow({
            column: f"'{one}" if isinstance(one, str) and re.match(r"[=+\-@\t\r]", one) else one
            for column, one in row.items()
        })  # fmt: skip
    atomic_write(file, text.getvalue())
