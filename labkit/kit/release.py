"""`labkit release OUT`: notebooks for students, each task an answer cell and a locked test cell.

OUT is a course of nbgrader: its metadata says how many points a test gives. Without nbgrader, hand
out the folders of OUT/source, and grade what comes back with `labkit grade`.
"""

import ast
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.exercises import tasks
from labkit.kinds import LabError
from labkit.plain import write_text
from labkit.publish import chosen

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
WRITTEN = "written"  # where lectures put their programs
LEFT_OUT = "solution"  # a tag: a cell for lecturers
TELLS = re.compile(r"\b(solution|hint|my_progress)\(")  # an output that a student has to ask for
CONFIGURATION = """\
# These notebooks have no solutions to clear, and keep their outputs.
c = get_config()
c.CourseDirectory.course_id = "labkit"
c.ExecutePreprocessor.timeout = 300
c.GenerateAssignment.preprocessors = [
    f"nbgrader.preprocessors.{name}"
    for name in ("LockCells", "ComputeChecksums", "SaveCells", "CheckCellMetadata")
]
"""


@dataclass(frozen=True)
class Asked:
    """A task in a cell: its name, the answer's name, and the source above the call of `check`."""

    task: str
    answer: str
    above: str

    @property
    def name(self) -> str:
        """The name of the task in nbgrader."""
        return self.task.replace(".", "-")

    @property
    def points(self) -> int:
        """The points for a right answer."""
        return tasks()[self.task].difficulty

    @property
    def test(self) -> str:
        """The source of the test cell. For nbgrader its last value is the points."""
        call = f'labkit.check("{self.task}", {self.answer})'
        return f"import labkit\n\noutcome = {call}\ndisplay(outcome)\n{self.points} * bool(outcome)"


def asked(source: str) -> Asked | None:
    """Returns what a cell asks if its last statement is `check("01.name", answer)`."""
    try:
        last: Any = ast.parse(source).body[-1]
        task, answer = last.value.args
        called = ast.unparse(last.value.func).rpartition(".")[2]
        above = "\n".join(source.splitlines()[: last.lineno - 1]).strip()
        return Asked(task.value, answer.id, above) if called == "check" else None
    except Exception:  # noqa: BLE001 (another kind of cell; it may also be too deep to be read)
        return None


def questions(notebook: Any) -> list[Asked]:
    """Returns the tasks that a notebook of the course asks."""
    found = (asked(cell.source) for cell in notebook.cells if cell.cell_type == "code")
    return [question for question in found if question and question.task in tasks()]


def released(notebook: Any, *, personal: bool = False) -> Any:
    """Returns the student's copy of a notebook. With `personal` it asks for the student's key."""
    from nbformat.v4 import new_code_cell

    cells = []
    for cell in notebook.cells:
        if LEFT_OUT in cell.metadata.get("tags", []):
            continue
        question = asked(cell.source) if cell.cell_type == "code" else None
        if question is None:
            if cell.cell_type == "code" and TELLS.search(cell.source):
                cell.outputs = []
            cells.append(cell)
            continue
        source = _as_it_came(question)
        outputs = cell.outputs if source == question.above else []
        cells += [
            _graded(new_code_cell(source, id=f"{cell.id}-answer"[:64]), f"{question.name}-answer"),
            _graded(
                new_code_cell(question.test, id=cell.id, outputs=outputs),
                question.name, question.points,
            ),
        ]  # fmt: skip
    if personal:
        source = "import labkit\n\nlabkit.student(...)  # your key, in quotes"
        cells.insert(1, _graded(new_code_cell(source, id="student-key"), "student-key"))
    notebook.cells = cells
    return notebook


def _as_it_came(question: Asked) -> str:
    """Returns the source of an answer cell without an answer that a lecturer has written there."""
    given, kept = tasks()[question.task].given.strip(), []
    for statement in ast.parse(question.above).body:
        text = blank = ast.get_source_segment(question.above, statement) or ""
        came = str(getattr(getattr(statement, "value", None), "value", text)).strip()
        names = [ast.unparse(one) for one in getattr(statement, "targets", ())]
        if question.answer in (getattr(statement, "name", ""), *names):
            if "..." in text or came == given:
                return question.above
            if isinstance(statement, ast.FunctionDef):
                statement.body = [ast.Expr(ast.Constant(...))]
                blank = given or ast.unparse(statement)
            else:
                blank = (
                    f'{question.answer} = """{given}"""' if given else f"{question.answer} = ..."
                )
        kept.append(blank)
    return "\n\n".join(kept)


def _graded(cell: Any, name: str, points: int | None = None) -> Any:
    """Returns the cell with nbgrader's metadata for a test, or for what the student writes."""
    test = points is not None
    cell.metadata["nbgrader"] = {
        "grade_id": name, "schema_version": 3, "cell_type": "code", "task": False,
        "grade": test, "locked": test, "solution": not test, **({"points": points} if test else {}),
    }  # fmt: skip
    return cell


def main(out: Path, names: Sequence[str] = (), *, personal: bool = False) -> int:
    """Write the released notebooks, each in a folder with the files that it needs."""
    import nbformat

    if NOTEBOOKS in (out.resolve() / "x").parents:
        raise LabError(f"{out} is in the folder of the notebooks: name first a folder to write.")
    found = {path: nbformat.read(path, as_version=4) for path in chosen(names, NOTEBOOKS)}
    found = {path: notebook for path, notebook in found.items() if questions(notebook)}
    if not found:
        raise LabError("None of these notebooks has a task. Name others, or none for all.")
    for path, notebook in found.items():
        count = len(questions(notebook))
        text = nbformat.writes(released(notebook, personal=personal))
        folder = out / "source" / path.stem
        (folder / WRITTEN).mkdir(parents=True, exist_ok=True)
        write_text(folder / path.name, text.rstrip("\n") + "\n")
        shutil.copy(path.parent / WRITTEN / "README.md", folder / WRITTEN)
        needed = f"{text} recordings" if "run_script(" in text else text  # of its programs
        for beside in (*path.parent.iterdir(), path.parent / WRITTEN / "recordings"):
            skipped = beside.suffix in (".ipynb", ".json") or beside.name == WRITTEN
            if skipped or beside.name not in needed:
                continue
            to = folder / beside.relative_to(path.parent)
            if beside.is_dir():
                shutil.copytree(beside, to, dirs_exist_ok=True)
            else:
                shutil.copyfile(beside, to)
        print(f"{folder / path.name}: {count} tasks")
    write_text(out / "nbgrader_config.py", CONFIGURATION)
    return 0
