"""Grading: what was handed in is judged in a sandbox, whatever it does."""

import csv
import os
import signal
import time

import nbformat
import pytest

from labkit.cluster.network import private_network_refused
from labkit.exercises import tasks, variants
from labkit.kinds import LabError
from labkit.kit import grade, sandbox
from labkit.kit.release import NOTEBOOKS, questions, released
from labkit.publish import chosen

LECTURE = "01_why_distribute"
BYTES = "01.bytes_per_step"


def course():
    return nbformat.read(NOTEBOOKS / f"{LECTURE}.ipynb", as_version=4)


TASKS = [one.task for one in questions(course())]
MOST = sum(tasks()[name].difficulty for name in TASKS)
SOLVED = {name: tasks()[name].solution.strip() for name in TASKS}


# It says that all is right, as a sandbox would but for the token, and ends its process.
FORGES = f"""
import os, sys
frame = sys._getframe()
while "send" not in frame.f_locals:
    frame = frame.f_back
for name in {TASKS}:
    frame.f_locals["send"](["guessed", name, "right", ""])
answer = os._exit(0)
"""


def hand_in(folder, student, answers=SOLVED, change=lambda notebook: None):
    """The released notebook with these answers, in the folder of a student."""
    notebook = released(course())
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        task = name.removesuffix("-answer").replace("-", ".", 1)
        if name.endswith("-answer") and task in answers:
            cell.source = answers[task]
    change(notebook)
    (folder / student).mkdir(parents=True)
    nbformat.write(notebook, folder / student / f"{LECTURE}.ipynb")


def table(folder, name="grades"):
    with (folder.with_name(f"{folder.name}-graded") / f"{name}.csv").open(newline="") as file:
        return {
            row["Student" if name != "moodle" else "Full name"]: row for row in csv.DictReader(file)
        }


def page(folder, student):
    return (folder.with_name(f"{folder.name}-graded") / f"{student}.html").read_text()


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class in which each student does something else."""
    folder = tmp_path_factory.mktemp("class") / "week1"
    hand_in(folder, "ada")
    right = f"answer = {tasks()[BYTES].solution.strip().partition('= ')[2].partition('  #')[0]}"
    hand_in(
        folder, "files", SOLVED | {BYTES: f"import tempfile\ntempfile.mkdtemp()  # <b>\n{right}"}
    )
    hand_in(folder, "none", {})
    hand_in(folder, "exits", SOLVED | {BYTES: FORGES})
    hand_in(
        folder, "loops", SOLVED | {BYTES: "import threading\nanswer = threading.Event().wait()"}
    )
    hand_in(
        folder,
        "bomb",
        SOLVED | {BYTES: "import os, signal\nwhile os.fork():\n    pass\nanswer = signal.pause()"},
    )
    hand_in(folder, "eats", SOLVED | {BYTES: "answer = [bytearray(2**26) for _ in range(10_000)]"})
    hand_in(folder, "broken", SOLVED | {BYTES: "answer = (1"})
    hand_in(folder, "patches", {BYTES: "import labkit\nlabkit.exercises.task.Task.check = "
            "lambda *_: labkit.exercises.Outcome('right', '')\nanswer = 1"})  # fmt: skip
    hand_in(folder, "talks", {BYTES: "import socket\n"
            "answer = len(socket.getaddrinfo('192.0.2.1', 80)) * "
            "socket.create_connection(('192.0.2.1', 80)).fileno()"})  # fmt: skip
    hand_in(
        folder, "writes", SOLVED | {BYTES: f"open({str(folder / 'ada' / 'x')!r}, 'w')\nanswer = 1"}
    )
    hand_in(folder, "tampers", {}, tamper)
    hand_in(folder, "deletes", SOLVED, delete)
    (folder / "damaged").mkdir()
    (folder / "damaged" / f"{LECTURE}.ipynb").write_text("{")
    (folder / "missing").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "MEMORY", 2**28)
        grade.main(folder, seconds=2)
    return folder


def tamper(notebook):
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.source = "1"
            cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "1"})]


def delete(notebook):
    tests = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    notebook.cells.remove(tests[0])


@pytest.mark.parametrize(
    ("student", "lost"),
    [("ada", 0), ("files", 0), ("deletes", 0), ("exits", 1), ("loops", 1), ("bomb", 1), ("eats", 1),
     ("broken", 1), ("none", MOST), ("tampers", MOST), ("patches", MOST), ("talks", MOST),
     ("damaged", MOST), ("missing", MOST)],
)  # fmt: skip
def test_each_student_has_the_points_of_the_right_answers(graded, student, lost):
    assert int(table(graded)[student]["Points"]) == MOST - lost


@pytest.mark.parametrize(
    ("student", "words"),
    [("exits", "ended by itself"), ("loops", "not done after 2 s"),
     ("broken", "SyntaxError"),
     ("patches", "changed labkit"), ("talks", "unreachable"),
     ("tampers", "was changed"), ("deletes", "was deleted"), ("damaged", "cannot be read"),
     ("missing", "not handed in"), ("eats", "emory"), ("writes", "Error"), ("files", "# &lt;b")],
)  # fmt: skip
def test_the_page_of_a_student_says_what_happened(graded, student, words):
    if student in ("talks", "writes", "eats") and (why := private_network_refused()):
        pytest.skip(why)
    assert words in page(graded, student)


def test_the_number_of_processes_is_limited(tmp_path):
    def forks(send):
        for _ in range(sandbox.PROCESSES):
            if not os.fork():
                signal.pause()
        send("forked")
        signal.pause()

    box = sandbox.start(forks, tmp_path, seconds=600)
    try:
        while box.pipe.poll(60) and box.receive() != "forked":
            pass  # where namespaces are refused, the first message says so
        assert box.exceeded() == f"started more than {sandbox.PROCESSES} processes"
    finally:
        box.end()


def test_no_process_of_a_submission_is_left(graded):
    import psutil

    assert [one for one in psutil.Process().children(recursive=True) if "fork" in one.name()] == []
    assert not (graded / "ada" / "x").exists()


def test_an_answer_may_use_what_cells_before_it_define(tmp_path):
    def add(notebook):
        notebook.cells.insert(2, nbformat.v4.new_code_cell("def four(n):\n    return 4 * n"))
        notebook.cells.insert(3, nbformat.v4.new_code_cell("1 / 0"))

    hand_in(tmp_path / "in", "own", {BYTES: "answer = four(1_199_882)"}, add)
    grade.main(tmp_path / "in")
    assert table(tmp_path / "in")["own"][BYTES] == "1"


def test_a_notebook_of_the_course_with_answers_in_it_is_graded_too(tmp_path):
    notebook = course()
    for cell in notebook.cells:
        cell.source = cell.source.replace(f'answer = ...\n\ncheck("{BYTES}"',
                                          f'answer = 1_199_882 * 4\ncheck("{BYTES}"')  # fmt: skip
    (tmp_path / "in").mkdir()
    nbformat.write(notebook, tmp_path / "in" / f"lovelaceada_77_12345_{LECTURE}.ipynb")
    grade.main(tmp_path / "in")
    assert table(tmp_path / "in")["lovelaceada 77"][BYTES] == "1"
    assert table(tmp_path / "in", "canvas")["lovelaceada"]["ID"] == "77"


def test_moodles_identifier_and_the_class_lists_columns_are_in_the_tables(tmp_path):
    hand_in(tmp_path / "in", "Ada Lovelace_4711_assignsubmission_file_", {})
    rows = tmp_path / "class.csv"
    rows.write_text(
        "Identifier,Full name,Email address\nParticipant 4711,Ada Lovelace,a@b.example\n"
    )
    grade.main(tmp_path / "in", class_list=rows)
    row = table(tmp_path / "in", "moodle")["Ada Lovelace"]
    assert (row["Identifier"], row["Email address"]) == ("Participant 4711", "a@b.example")
    assert (row["Grade"], row["Maximum Grade"]) == ("0", str(MOST))


def test_anonymous_tables_and_pages_name_no_student(tmp_path):
    hand_in(tmp_path / "in", "lovelace", {})
    grade.main(tmp_path / "in", anonymous=True)
    out = tmp_path / "in-graded"
    assert sorted(file.name for file in out.iterdir()) == [
        "grades.csv", "keys.csv", "student-001.html",
    ]  # fmt: skip
    files = [out / "grades.csv", out / "student-001.html"]
    assert "lovelace" not in "".join(file.read_text() for file in files)


def test_with_numbers_of_ones_own_a_neighbours_answer_is_refused(tmp_path):
    mine = variants.personal(BYTES, tasks()[BYTES], "ada").solution.strip()
    for student in ("ada", "bob"):
        hand_in(tmp_path / "in", student, {BYTES: mine})
    grade.main(tmp_path / "in", personal=True)
    points = {student: row[BYTES] for student, row in table(tmp_path / "in").items()}
    assert points == {"ada": "1", "bob": "0"}


def test_a_folder_without_notebooks_of_the_course_is_refused(tmp_path):
    with pytest.raises(LabError, match="No notebook of the course"):
        grade.main(tmp_path)


@pytest.mark.stress
@pytest.mark.parametrize("lecture", ["07", "10", "14", "16", "18"])
def test_worked_solutions_have_all_points_also_those_that_start_ranks_over_links(lecture, tmp_path):
    [path] = chosen([lecture], NOTEBOOKS)
    notebook = released(nbformat.read(path, as_version=4))
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if name.endswith("-answer"):
            task = name.removesuffix("-answer").replace("-", ".", 1)
            cell.source = tasks()[task].solution.strip()
    (tmp_path / "in" / "ada").mkdir(parents=True)
    nbformat.write(notebook, tmp_path / "in" / "ada" / path.name)
    grade.main(tmp_path / "in", seconds=300)
    row = table(tmp_path / "in")["ada"]
    assert row["Points"] == row["Of"]


@pytest.mark.stress
def test_200_submissions_of_a_notebook_have_all_their_points(tmp_path):
    for number in range(200):
        hand_in(tmp_path / "in", f"student{number}")
    began = time.monotonic()
    grade.main(tmp_path / "in")
    print(f"{time.monotonic() - began:.0f} s for 200 submissions of {len(TASKS)} tasks")
    assert {row["Points"] for row in table(tmp_path / "in").values()} == {str(MOST)}
