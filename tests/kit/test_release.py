"""What students get: the cells as they came, and a locked test below each."""

import ast

import nbformat
import pytest

from labkit.cli import main
from labkit.exercises import tasks
from labkit.kinds import LabError
from labkit.kit import release
from labkit.kit.release import NOTEBOOKS, asked, questions, released


def lecture(name):
    return nbformat.read(next(NOTEBOOKS.glob(f"{name}_*.ipynb")), as_version=4)


def graded(notebook):
    return {
        cell.metadata["nbgrader"]["grade_id"]: cell
        for cell in notebook.cells
        if "nbgrader" in cell.metadata
    }


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_every_task_has_an_answer_cell_and_a_locked_test_that_gives_its_points(path):
    course = nbformat.read(path, as_version=4)
    wanted = questions(course)
    cells = graded(released(course))
    assert len(cells) == 2 * len(wanted)
    for one in wanted:
        test, answer = cells[one.name], cells[f"{one.name}-answer"]
        assert answer.source == one.above
        assert f'labkit.check("{one.task}", {one.answer})' in test.source
        assert test.metadata["nbgrader"]["points"] == tasks()[one.task].difficulty
        assert test.metadata["nbgrader"]["locked"]
        ast.parse(test.source)
    nbformat.validate(course)


def test_an_answer_and_an_output_that_a_lecturer_left_are_removed():
    for name in ("10", "20", "21", "35"):
        course = lecture(name)
        came = {one.task: one.above for one in questions(course)}
        for cell in course.cells:
            one = asked(cell.source) if cell.cell_type == "code" else None
            if one:
                cell.source = (
                    f'{tasks()[one.task].solution.strip()}\ncheck("{one.task}", {one.answer})'
                )
                if f"def {one.answer}" not in cell.source and one.answer != "answer":
                    cell.source = cell.source.replace("answer =", f"{one.answer} =")
                cell.outputs = [nbformat.v4.new_output("stream", text="✓ Right. 42")]
        cells = graded(released(course))
        for task, source in came.items():
            test = task.replace(".", "-")
            answer = cells[f"{test}-answer"].source
            given = tasks()[task].given.strip()
            assert "..." in answer or (given and given in answer), (task, source, answer)
            assert cells[test].outputs == []
        text = nbformat.writes(course)
        assert "✓ Right. 42" not in text


def test_cells_for_lecturers_and_outputs_that_tell_solutions_are_left_out():
    course = lecture("10")
    course.cells[3:3] = [
        nbformat.v4.new_code_cell("secret", metadata={"tags": ["solution"]}),
        nbformat.v4.new_code_cell(
            'labkit.solution("10.adam_memory")',
            outputs=[nbformat.v4.new_output("stream", text="48")],
        ),
    ]
    cells = released(course).cells
    assert [cell for cell in cells if cell.source == "secret"] == []
    assert [cell.outputs for cell in cells if "labkit.solution(" in cell.source] == [[]]


def test_a_course_of_nbgrader_is_written_with_the_files_that_notebooks_use(tmp_path, capsys):
    assert main(["release", str(tmp_path), "10", "50", "--personal"]) == 0
    assert "10_why_distribute.ipynb: 8 tasks" in capsys.readouterr().out
    assert (tmp_path / "nbgrader_config.py").exists()
    folder = tmp_path / "source" / "50_ddp_by_hand"
    assert (folder / "programs" / "50_ddp_by_hand.py").exists()
    assert (folder / "written/recordings/50_same.json").exists()
    assert [one.name for one in folder.glob("*.ipynb")] == [
        "50_ddp_by_hand.ipynb"
    ]  # it links others
    assert (tmp_path / "source/10_why_distribute/written/README.md").exists()
    written = nbformat.read(
        tmp_path / "source" / "10_why_distribute" / "10_why_distribute.ipynb", as_version=4
    )
    assert "labkit.student(...)" in written.cells[1].source


def test_notebooks_without_tasks_and_the_folder_of_the_notebooks_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "questions", lambda notebook: [])
    for out, says in ((tmp_path, "None of these"), (NOTEBOOKS / "written/x", "folder of the")):
        with pytest.raises(LabError, match=says):
            release.main(out, ["10"])
