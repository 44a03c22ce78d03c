"""`labkit grade FOLDER`: judge what students handed in, each notebook in a sandbox of its own.

Of a submission only the answers count. The sandbox computes each with the statements that it needs,
and the course's own task judges it: a test cell in the submission has no effect.
"""

import ast
import csv
import linecache
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from labkit.exercises import Task, tasks, variants
from labkit.kinds import LabError
from labkit.kit import sandbox
from labkit.kit.feedback import Result, Submission, page
from labkit.kit.release import NOTEBOOKS, Asked, asked, questions
from labkit.kit.sandbox import Sandbox, Send
from labkit.plain import write_text
from labkit.publish import chosen

# How Moodle and Canvas name what a lecturer downloads.
MOODLE = re.compile(r"(?P<student>.+)_(?P<number>\d+)_assignsubmission_.*")
CANVAS = re.compile(r"(?P<student>[^_]+)_(?:LATE_)?(?P<number>\d+)_\d+_.*")
READS_SOLUTIONS = re.compile(r"\b(solution|exercises|tasks)\b")


def main(
    folder: Path, names: Sequence[str] = (), *, class_list: Path | None = None,
    personal: bool = False, anonymous: bool = False, seconds: float = 60.0,
) -> int:  # fmt: skip
    """Grade all submissions in a folder; write tables and a page for each student beside it."""
    import nbformat

    files = _files(folder)
    students = sorted({(student, number) for student, number, _ in files})
    graded: list[Submission] = []
    for path in chosen(names, NOTEBOOKS):
        mine = {
            (student, number): f
            for student, number, f in files
            if path.stem in str(f.relative_to(folder))
        }
        if not names and not mine:
            continue
        course = nbformat.read(path, as_version=4)
        _import_what_it_imports(course)
        handed_in = [
            _read(Submission(*who, path.stem), mine.get(who), questions(course)) for who in students
        ]
        for done in _graded(handed_in, folder, seconds, personal=personal):
            graded.append(done)
            print(f"{done.student}, {done.notebook}: {done.points} of {done.most}", flush=True)
    if not graded:
        raise LabError(f"No notebook of the course was found in {folder}, in a folder a student.")
    for reason in {one.refused for one in graded} - {""}:
        print(f"Submissions had network and disk: {reason}.", file=sys.stderr)
    to = folder.with_name(f"{folder.name}-graded")
    to.mkdir(exist_ok=True)
    _write(graded, _class(class_list), to, anonymous=anonymous)
    print(f"{to}: the tables, and a page for each student")
    return 0


def _files(folder: Path) -> list[tuple[str, str, Path]]:
    """Student, number in Moodle or Canvas, and a notebook, or the folder that should hold it."""
    if not folder.is_dir():
        raise LabError(f"{str(folder)!r} is not a folder. Give the one with the submissions.")
    found: list[tuple[str, str, Path]] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or not (entry.is_dir() or entry.suffix == ".ipynb"):
            continue
        named = MOODLE.fullmatch(entry.name) or CANVAS.fullmatch(entry.name)
        student, number = named.group("student", "number") if named else (entry.stem, "")
        inside = [f for f in sorted(entry.rglob("*.ipynb")) if ".ipynb_checkpoints" not in f.parts]
        found += [(student, number, file) for file in inside or [entry]]
    return found


def _import_what_it_imports(course: Any) -> None:
    """Load it once, in this process: each sandbox is its fork."""
    for cell in course.cells:
        for statement in _statements(cell.source) if cell.cell_type == "code" else ():
            if isinstance(statement, ast.Import | ast.ImportFrom):
                with suppress(Exception):
                    exec(ast.unparse(statement), {})  # noqa: S102 (of the course's own notebook)


def _statements(source: str) -> list[ast.stmt]:
    with suppress(SyntaxError, ValueError):
        return ast.parse(source).body
    return []


def _read(found: Submission, file: Path | None, course: list[Asked]) -> Submission:
    """The cells of a notebook that was handed in, and where the answers are."""
    import nbformat

    found.asked = {one.task: one for one in course}
    if file is None or file.is_dir():
        found.notes.append("This notebook was not handed in.")
        return found
    try:
        cells = [one for one in nbformat.read(file, as_version=4).cells if one.cell_type == "code"]
        names = [str(cell.metadata.get("nbgrader", {}).get("grade_id", "")) for cell in cells]
        sources = [re.sub(r"^[%!].*", "", cell.source, flags=re.MULTILINE) for cell in cells]
    except Exception as fault:  # noqa: BLE001 (nbformat lets out whatever a damaged file causes)
        found.notes.append(f"{file.name} cannot be read: {type(fault).__name__}.")
        return found
    by_name = {one.name: one for one in course}
    tests = {}
    for index, name in enumerate(names):
        if one := by_name.get(name):
            tests[one.task], sources[index] = sources[index], ""
        elif one := by_name.get(name.removesuffix("-answer")):
            found.answers[one.task] = index
        elif (one := asked(sources[index])) and one.name in by_name:  # the course's notebook
            found.answers[one.task], tests[one.task], sources[index] = index, one.test, one.above
    found.cells = sources
    for one in course:
        if one.task not in found.answers:
            found.notes.append(f"The answer cell of {one.task} is missing.")
        elif READS_SOLUTIONS.search(found.cells[found.answers[one.task]]):
            found.notes.append(f"The answer to {one.task} speaks of the course's own solutions.")
        if (test := tests.get(one.task, "").strip()) != one.test:
            done = "changed" if test else "deleted"
            found.notes.append(f"The test cell of {one.task} was {done}, which has no effect.")
    return found


def _graded(
    submissions: list[Submission], folder: Path, seconds: float, *, personal: bool
) -> Iterator[Submission]:
    """As many sandboxes at a time as there are cores; a new one after a task that ends its own."""
    waiting, running = submissions[::-1], dict[Any, tuple[Submission, Sandbox, str]]()
    while waiting or running:
        while waiting and len(running) < len(os.sched_getaffinity(0)):
            one = waiting.pop()
            if not one.left():
                yield one
                continue
            token = secrets.token_hex(8)
            key = one.student if personal else ""
            box = sandbox.start(_answers(one, key, token), folder, seconds)
            running[box.pipe] = one, box, token
        for pipe, (one, box, token) in [*running.items()]:
            ended = box.exceeded()
            while not ended and pipe.poll():
                ended = _hear(one, box, token)
            if ended:
                box.end()
                del running[pipe]
                waiting.append(one)
                for task in (one.judging or one.left()[0],) if ended != "done" else ():
                    one.results[task] = Result("ended", f"Its process {ended}.")
        wait([*running], timeout=0.2)


def _hear(one: Submission, box: Sandbox, token: str) -> str:
    """Read a message of a sandbox; how it ended, if it did. What lacks the token says nothing."""
    try:
        match box.receive():
            case [said, task, "running", _] if said == token:
                one.judging = task
            case [said, task, state, text] if said == token and task in one.asked:
                one.results[task], one.judging = Result(state, text), ""
            case ["refused", str(reason)] if not one.judging and not one.results:
                one.refused = reason
            case [said] if said == token:
                return "done"
    except (EOFError, OSError, ValueError):
        return "ended by itself"
    return ""


def _answers(one: Submission, key: str, token: str) -> Callable[[Send], None]:
    """What runs in the sandbox."""
    known = {name: variants.personal(name, tasks()[name], key) for name in one.left()}

    def work(send: Send) -> None:
        before = _labkit()
        for name, task in known.items():
            send([token, name, "running", ""])
            state, text = _judged(one, name, task)
            after = _labkit()
            if any(after.get(part, value) != value for part, value in before.items()):
                state, text = "ended", "The answer changed labkit itself."
            send([token, name, state, text])
        send([token])

    return work


def _judged(one: Submission, name: str, task: Task) -> tuple[str, str]:
    index = one.answers[name]
    source, space = one.cells[index], dict[str, Any](__name__="__main__", display=lambda *_: None)
    try:
        answer = ast.parse(source)
        for number, statements in _needed(one.cells[:index], answer):
            with suppress(Exception, SystemExit):
                _run(statements, one.cells[number], f"<cell {number}>", space)
        _run(answer.body, source, f"<answer {name}>", space)
    except (Exception, SystemExit) as fault:  # noqa: BLE001 (the next task is judged, too)
        return "wrong", f"The cell raised {type(fault).__name__}: {fault}"[:2000]
    outcome = task.check(space.get(one.asked[name].answer, ...))
    return outcome.state, outcome.text


def _run(statements: list[ast.stmt], source: str, name: str, space: dict[str, Any]) -> None:
    """As in a notebook: Python can read the source again."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(ast.Module(statements, []), name, "exec"), space)  # noqa: S102


def _needed(cells: Sequence[str], answer: ast.AST) -> list[tuple[int, list[ast.stmt]]]:
    """The statements of these cells that bind names which an answer needs, by cell, in order."""
    wanted, found = _names(answer, ast.Load), []
    for number, source in reversed([*enumerate(cells)]):
        kept = []
        for statement in reversed(_statements(source)):
            if wanted & _bound(statement):
                wanted |= _names(statement, ast.Load)
                kept.append(statement)
        found.append((number, kept[::-1]))
    return found[::-1]


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value, or whose parts it changes."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(one.asname or one.name).partition(".")[0] for one in statement.names}
    parts = [n for n in ast.walk(statement) if isinstance(n, ast.Subscript | ast.Attribute)]
    changed = {ast.unparse(n.value) for n in parts if isinstance(n.ctx, ast.Store)}
    return _names(statement, ast.Store) | changed


def _names(tree: ast.AST, how: type[ast.expr_context]) -> set[str]:
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in found if isinstance(node.ctx, how)}


def _labkit() -> dict[tuple[str, str], int]:
    """What the modules and classes of labkit, and those that judge numbers, consist of."""
    judges = "labkit", "math", "builtins", "json"
    every: list[tuple[str, Any]] = [
        item for item in [*sys.modules.items()] if item[0].partition(".")[0] in judges
    ]
    every += [
        (f"{name}.{part}", value) for name, one in every for part, value in [*vars(one).items()]
        if isinstance(value, type) and value.__module__ == name
    ]  # fmt: skip
    parts = {(name, part): id(value) for name, one in every for part, value in [*vars(one).items()]}
    return {part: value for part, value in parts.items() if part[1] != "_"}


def _class(file: Path | None) -> list[dict[str, str]]:
    """The rows of a class list: a table that Moodle or Canvas exports."""
    if file is None:
        return []
    try:
        return [*csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines())]
    except (OSError, ValueError, csv.Error) as fault:
        raise LabError(f"{str(file)!r} cannot be read as a class list: {fault}.") from None


def _write(
    graded: list[Submission], rows: list[dict[str, str]], to: Path, *, anonymous: bool
) -> None:
    """The page of each student, our table, and those that Moodle and Canvas import."""
    students = [*dict.fromkeys((one.student, one.number) for one in graded)]
    shown = {who: " ".join(who).strip() for who in students}
    if anonymous:
        order = secrets.SystemRandom().sample(students, len(students))
        shown = {who: f"student-{number:03}" for number, who in enumerate(order, 1)}
        _table(to / "keys.csv", [{"Key": shown[who], "Student": who[0]} for who in students])
    ours, moodle, canvas = [], [], []
    for who in students:
        mine = [one for one in graded if (one.student, one.number) == who]
        points, most = sum(one.points for one in mine), sum(one.most for one in mine)
        stem = re.sub(r"[^\w.-]", "_", shown[who])
        write_text(to / f"{stem}.html", page(shown[who], mine))
        notes = " ".join(note for one in mine for note in one.notes)
        each = {task: one.got(task) for one in mine for task in one.asked}
        ours.append({"Student": shown[who], "Points": points, "Of": most, **each, "Notes": notes})
        called = {who[0], who[1], f"Participant {who[1]}"} - {"", "Participant "}
        row = next((row for row in rows if called & {*row.values()}), {})
        moodle.append({
            "Identifier": f"Participant {who[1]}" if who[1] else "", "Full name": who[0],
            "Email address": "", "Grade": points, "Maximum Grade": most, "Feedback comments": notes,
        })  # fmt: skip
        canvas.append({
            "Student": who[0], "ID": who[1], "SIS User ID": "",
            "SIS Login ID": "" if who[1] else who[0], "Section": "", "labkit": points,
        })  # fmt: skip
        for table in (moodle, canvas):
            table[-1] |= {column: row[column] for column in table[-1] if row.get(column)}
    _table(to / "grades.csv", ours)
    if not anonymous:
        _table(to / "moodle.csv", moodle)
        possible = {"Student": "    Points Possible", "labkit": most}
        _table(to / "canvas.csv", [dict.fromkeys(canvas[0], "") | possible, *canvas])


def _table(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as target:
        columns = dict.fromkeys(column for row in rows for column in row)
        writer = csv.DictWriter(target, [*columns])
        writer.writeheader()
        writer.writerows(rows)
