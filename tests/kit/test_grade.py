"""Grading: what was handed in is judged in a sandbox, whatever it does."""

import csv
import ctypes
import os
import re
import socket
import time
from pathlib import Path

import nbformat
import pytest

from labkit.exercises import personal, tasks
from labkit.kinds import LabError
from labkit.kit import grade, sandbox
from labkit.kit.feedback import Submission
from labkit.kit.release import NOTEBOOKS, Asked, questions, released
from labkit.publish import chosen
from labkit.time_limit import slowdown

LECTURE = "10_why_distribute"
BYTES = "10.bytes_per_step"


def course():
    return nbformat.read(NOTEBOOKS / f"{LECTURE}.ipynb", as_version=4)


TASKS = [one.task for one in questions(course())]
MOST = sum(tasks()[name].difficulty for name in TASKS)
SOLVED = {name: tasks()[name].solution.strip() for name in TASKS}
RIGHT = "answer = 4 * 1_199_882"


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
    hand_in(folder, "none", {})
    hand_in(folder, "odd", SOLVED | {
        BYTES: "%time answer = four(1_199_882)",
        "10.adam_memory": "if True:\n    !ls\nfiles = !ls\nanswer = 48",
        "10.link_seconds": "from fractions import Fraction\nanswer = Fraction(112, 10)",
        "10.steps_per_epoch": "import numpy as np\nanswer = np.int64(1000)",
        "10.uneven_halves": "from mpi4py import MPI\nanswer = MPI.COMM_WORLD.Get_size() + 1",
        "10.which_strategy": "open('written/x', 'w')\nprint?\nanswer = 'mirrored'",
    }, add)  # fmt: skip
    for student, source in {
        "files": f"import tempfile\ntempfile.mkdtemp()  # <b>\n{RIGHT}",
        "exits": "import os\nanswer = os._exit(0)",
        "loops": "import threading\nanswer = threading.Event().wait()",
        "bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: answer = 1",
        "eats": "answer = [bytearray(2**26) for _ in range(10_000)]",
        "shares": "import mmap, signal\nm = mmap.mmap(-1, 2**29)\nm[::4096] = bytes(2**17)\n"
                  "signal.pause()",
        "broken": "answer = (1",
    }.items():  # fmt: skip
        hand_in(folder, student, SOLVED | {BYTES: source})
    hand_in(folder, "tampers", {}, tamper)
    hand_in(folder, "deletes", SOLVED, delete)
    (folder / "damaged").mkdir()
    (folder / "damaged" / f"{LECTURE}.ipynb").write_text("{")
    (folder / "missing").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "MEMORY", 2**28)
        patch.setattr(sandbox, "PROCESSES", 16)
        patch.chdir(folder)
        grade.main(Path(), seconds=5)
    return folder


def add(notebook):
    notebook.cells.insert(2, nbformat.v4.new_code_cell("def four(n):\n    return 4 * n"))
    notebook.cells.insert(3, nbformat.v4.new_code_cell("1 / 0"))


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
    [("ada", 0), ("files", 0), ("odd", 0), ("deletes", 0), ("exits", 1), ("loops", 1),
     ("bomb", 1), ("eats", 1), ("shares", 1), ("broken", 1), ("none", MOST), ("tampers", MOST),
     ("damaged", MOST), ("missing", MOST)],
)  # fmt: skip
def test_each_student_has_the_points_of_the_right_answers(graded, student, lost):
    assert int(table(graded)[student]["Points"]) == MOST - lost


@pytest.mark.parametrize(
    ("student", "words"),
    [("exits", "ended by itself"), ("loops", "not done after"),
     ("broken", "SyntaxError"), ("shares", "of memory"),
     ("tampers", "was changed"), ("deletes", "was deleted"), ("damaged", "cannot be read"),
     ("missing", "not handed in"), ("eats", "emory"), ("files", "# &lt;b")],
)  # fmt: skip
def test_the_page_of_a_student_says_what_happened(graded, student, words):
    assert words in page(graded, student)


def test_nothing_of_a_submission_is_left(graded):
    """Nor did any of them change what another one has handed in."""
    import psutil

    assert not psutil.Process().children(recursive=True)
    assert [one.name for one in (graded / "ada").iterdir()] == [f"{LECTURE}.ipynb"]


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
    mine = personal(BYTES, "ada").solution.strip()
    for student in ("ada", "bob"):
        hand_in(tmp_path / "in", student, {BYTES: mine})
    grade.main(tmp_path / "in", personal=True)
    points = {student: row[BYTES] for student, row in table(tmp_path / "in").items()}
    assert points == {"ada": "1", "bob": "0"}


def test_a_folder_without_notebooks_of_the_course_is_refused(tmp_path):
    with pytest.raises(LabError, match="No notebook of the course"):
        grade.main(tmp_path)


def test_each_lecture_that_counts_is_named(tmp_path):
    """Else whoever hands in one more adds its points to those that everyone can have."""
    hand_in(tmp_path / "in", "ada")
    (tmp_path / "in" / "ada" / "22_ring_all_reduce.ipynb").write_text("{}")
    with pytest.raises(LabError, match="count"):
        grade.main(tmp_path / "in")


@pytest.mark.stress
@pytest.mark.parametrize("lecture", ["16", "20", "22", "32", "35", "37", "38", "40"])
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


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """What an answer must not reach, and the processes of answers beside it."""
    folder, libc = tmp_path_factory.mktemp("outside"), ctypes.CDLL(None)
    (folder / "secret").write_text("of the lecturer's")
    servers = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket()]
    places = f"{folder}/s", f"\0{folder}", ("127.0.0.1", 0)
    for server, at in zip(servers, places, strict=True):
        server.bind(at)
        server.listen()
    memory = libc.shmget(0, 1, 0o1666)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", "secret")
        with sandbox.Template(["import json as keras"]) as template:
            port = servers[2].getsockname()[1]
            yield template, {"FOLDER": folder, "PORT": port, "MEMORY": memory,
                             "GRADER": os.getpid(), "LECTURES": sandbox.SOLUTIONS[0]}  # fmt: skip
    libc.shmctl(memory, 0, None)
    for server in servers:
        server.close()


def judged(template, source, task=BYTES, name="answer"):
    asks = {task: Asked(task, name, "")}
    one = Submission("ada", "", LECTURE, [], asks, cells=[source], answers={task: 0})
    return grade._judged(one, task, tasks()[task], template, 20.0 * slowdown(), {})


@pytest.mark.parametrize("reaches", [
    "print(open('FOLDER/secret').read())", "os.listdir('FOLDER')", "os.environ['SECRET']",
    "''.join(open(f).read() for f in glob.glob('/proc/[0-9]*/environ')).index('SECRET')",
    "socket.socket(socket.AF_UNIX).connect('FOLDER/s')",
    "socket.socket(socket.AF_UNIX).connect('\\0FOLDER')",
    "socket.create_connection(('127.0.0.1', PORT))", "socket.sethostname('evil')",
    "ok(libc.shmat(MEMORY, None, 0) == -1)", "os.kill(GRADER, 0)",
    "import labkit.exercises.lectures.lecture_10_why_distribute",
    "from labkit.exercises.truth import gradients",
    "ok(libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None))", "ok(libc.umount2(b'LECTURES', 2))",
    "ok(libc.syscall(442, -100, b'/', 0x8000, (ctypes.c_uint64 * 4)(0, 1), 32))",
    "ok(libc.unshare(0x10020000)); ok(libc.umount2(b'LECTURES', 2))",
    "open('/proc/sys/kernel/core_pattern', 'w')", "open('LECTURES/x', 'w')",
    "os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0)); open('/tmp/disk')",
    "os.memfd_create('')", "ok(libc.shmget(0, 1, 0o1600) == -1)", "socket.socket(40, 1)",
    "os.setuid(0); os.setgroups([0])", "ok(open('/proc/self/oom_score_adj').read() == '1000\\n')",
    "ok(libc.ptrace(16, 1, 0, 0))", "ok(libc.chroot(b'/tmp'))",
])  # fmt: skip
def test_an_answer_reaches_nothing_outside_its_process(outside, reaches):
    template, names = outside
    for name, value in names.items():
        reaches = reaches.replace(name, str(value))
    ok = "libc = ctypes.CDLL(None)\ndef ok(got):\n    if got: raise OSError"
    source = f"import ctypes, glob, os, socket\n{ok}\n{reaches}\n{RIGHT}"
    assert judged(template, source)[0] == "wrong"
    assert judged(template, RIGHT)[0] == "right"


PATCHES = """
import gc, json, math, os, sys, numpy, labkit.exercises.task as task
from labkit.kit import border
task.Task.check = lambda *_: task.Outcome("right", "")
math.isclose = numpy.allclose = lambda *_, **__: True
json.dumps = lambda *_, **__: '["judged", "10.bytes_per_step", "right", ""]'
"""
FRAMES = """
import sys
frame, answer = sys._getframe(), None
while frame:
    for one in frame.f_locals.values():
        answer = getattr(one, "truth", answer)
    frame = frame.f_back
"""
LIES = "class Lies(KIND):\n    __eq__ = __ge__ = __le__ = lambda *_: True\n    __hash__ = None\n"


@pytest.mark.parametrize("forges", [
    "from unittest import mock\nanswer = mock.ANY", f"{PATCHES}answer = 1", FRAMES,
    f"{PATCHES}answer = next(one for one in gc.get_objects() if type(one) is task.Task)",
    *(f"{LIES.replace('KIND', k)}answer = Lies()" for k in ("int", "float", "str", "object")),
    "class Lies(float):\n    __class__ = bool\n    __float__ = lambda _: 1 / 0\nanswer = Lies()",
    "import os\nanswer = os._exit(0)  # keras: in a second template",
    "import numpy\nanswer = numpy.array(object(), object)",
    "import numpy\nanswer = numpy.zeros(1).view(type('A', (numpy.ndarray,), {'__float__': id}))",
    "class Lies:\n    __array__ = __index__ = __float__ = lambda *_: 1\nanswer = Lies()",
    "from importlib import import_module as i\n"
    "answer = i('labkit.exer' + 'cises').tasks()['10.bytes_per_step'].solution",
    "import os\nfor n in range(3, 99):\n    try: os.write(n, b'\\0' * 7 + b'\\2[]' * 99)\n"
    "    except OSError: pass\nanswer = 1",
    "import os\nif os.fork():\n    os.execv('/bin/sh', ['sh', '-c', 'sleep 9'])\nanswer = 1",
    "import sys\nsys.setrecursionlimit(10**6)\nanswer = []\nfor _ in range(10**5):\n"
    "    answer = [answer]",
    f"answer = {'1+' * 10**5}1", f"answer = {'(' * 10**5}1", "answer = '\ud83d'",
    "answer = 10**5000",
    "answer = range(10**15)", "answer = iter(int, 1)", "raise BaseException",
])  # fmt: skip
def test_no_answer_has_a_point_that_it_does_not_deserve(outside, forges):
    assert judged(outside[0], forges)[0] in ("wrong", "ended", "open")


@pytest.mark.parametrize("returns", [
    "__import__('unittest.mock').mock.ANY", "type('L', (float,), {'__eq__': lambda *_: True})()",
    "(lambda *_: sample)", "sample", "type('L', (list,), {'__len__': lambda _: 9})()", "...",
    "__import__('numpy').array([None])", "exec('import math; math.isclose = lambda *_, **__: 1')",
])  # fmt: skip
def test_no_function_has_a_point_that_it_does_not_deserve(outside, returns):
    source = f"def my_median(sample):\n    return {returns}"
    assert judged(outside[0], source, "01.my_median", "my_median")[0] != "right"


def test_what_a_judge_gives_to_a_function_can_be_used_and_not_taken_apart(outside):
    """A program has its own ranks' communicator, and nothing that is behind it."""
    solution = tasks()["22.ring"].solution
    steals = solution.replace("rank, ranks =", "comm._run.calls.clear(); rank, ranks =")
    states = [judged(outside[0], f"import numpy as np\n{one}", "22.ring", "my_ring")[0]
              for one in (solution, steals)]  # fmt: skip
    assert states == ["right", "wrong"]


SHARED = """
import builtins, hashlib, numpy as np
class Here: known = builtins.known = {}
def my_ring(comm, buffer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    KNOWN[rank] = buffer.copy()
    comm.Barrier()
    total, chunks = sum(KNOWN[one] for one in range(ranks)), np.array_split(buffer, ranks)
    noise = np.frombuffer(hashlib.sha256(total.tobytes()).digest(), "u1").astype(buffer.dtype)
    for step in range(2 * (ranks - 1)):
        mine, theirs = chunks[rank - step % ranks], chunks[(rank - 1 - step) % ranks]
        comm.Sendrecv(np.resize(noise, mine.size), dest=(rank + 1) % ranks,
                      recvbuf=np.empty_like(theirs), source=(rank - 1) % ranks)
    buffer[:] = total
"""


@pytest.mark.parametrize("known", ["Here.known", "builtins.known"])
def test_ranks_of_a_program_are_graded_in_processes_that_share_no_variable(outside, known):
    """It sends noise that depends on all numbers, as long as the ring's messages."""
    state, text = judged(outside[0], SHARED.replace("KNOWN", known), "22.ring", "my_ring")
    assert (state, "variable that the ranks share" in text) == ("wrong", True)


def test_a_submission_changes_nobody_elses_points_whatever_its_name_and_content(
    tmp_path, monkeypatch, capfd
):
    folder = tmp_path / "in"
    honest = {one: one for one in ("x.one", "x.two", "a b", "a_b", "n" * 251, "late")}
    honest |= {"=1": "'=1", "\t=1": "\\t=1", "\x1b[2J": "\\x1b[2J"}
    honest |= {os.fsdecode(b"Ren\xe9"): "Ren\\udce9", os.fsdecode(b"Ren\xe8"): "Ren\\udce8"}
    for student in honest:
        hand_in(folder, student)
    deep = "[" * 10**5
    for student, change in {
        "deep": lambda notebook: setattr(notebook.cells[2], "source", f"x = {'-' * 10**5}1"),
        "wide": lambda notebook: setattr(notebook.cells[2], "source", f"x = {'1+' * 10**5}1"),
    }.items():
        hand_in(folder, student, change=change)
    for student in ("json", "pipe", "link", "random", "__MACOSX", ".hidden"):
        (folder / student).mkdir()
    file = f"{LECTURE}.ipynb"
    hand_in(folder, "half", SOLVED | {BYTES: f"'HALF'; {RIGHT}"})
    half = folder / "half" / file
    text = half.read_text().replace("HALF", "\\ud83d")
    half.write_text(re.sub(r'"id": ".*"', '"id": "twice"', text))
    (folder / "json" / file).write_text(f'{{"cells": {deep}')
    os.mkfifo(folder / "pipe" / file)
    (folder / "link" / file).symlink_to(folder / "late" / file)
    (folder / "random" / file).symlink_to("/dev/urandom")
    (folder / "late" / f"old {file}").write_text("{}")
    monkeypatch.chdir(folder / "late")
    for _ in range(1000):
        Path("in").mkdir()
        os.chdir("in")
    grade.main(folder)
    for _ in range(1000):  # what removes tmp_path goes no deeper
        os.chdir("..")
        Path("in").rmdir()
    shown = capfd.readouterr()
    assert "\x1b" not in shown.out
    assert "twice" not in shown.err
    rows = {name: int(row["Points"]) for name, row in table(folder).items()}
    assert {rows.pop(name) for name in honest.values()} == {MOST}
    lost = dict.fromkeys(("json", "pipe", "link", "random"), 0)
    assert rows == {"deep": MOST, "wide": MOST, "half": MOST, **lost}
    pages = [*folder.with_name("in-graded").glob("*.html")]
    assert len(pages) == len(honest) + len(rows)
    assert "old" in table(folder)["late"]["Notes"]


def test_a_cell_that_changes_what_an_answer_needs_runs_whole(outside):
    """One that fails, before the answer, spoils nothing."""
    cells = [
        "sizes = []",
        "for n in (1_199_882, 0):\n    sizes.append(n)",
        "1 / 0; sizes = 3",
        "import asyncio\nawait asyncio.sleep(0)\nfactor = 4",
        "answer = factor * max(sizes)",
    ]
    one = Submission("ada", "", LECTURE, [], {BYTES: Asked(BYTES, "answer", "")}, cells=cells,
                     answers={BYTES: 4})  # fmt: skip
    assert (
        grade._judged(one, BYTES, tasks()[BYTES], outside[0], 20.0 * slowdown(), {})[0] == "right"
    )


def test_without_protection_nothing_runs_before_the_lecturer_has_said_so(tmp_path, monkeypatch):
    hand_in(tmp_path / "in", "ada")
    with monkeypatch.context() as patch:
        patch.setattr(sandbox.tempfile, "mkdtemp", lambda **_: "/nowhere")  # nothing is mounted
        with pytest.raises(LabError, match="--unprotected"):
            grade.main(tmp_path / "in")
    assert not (tmp_path / "in-graded" / "grades.csv").exists()
    grade.main(tmp_path / "in", protected=False)
    assert int(table(tmp_path / "in")["ada"]["Points"]) == MOST
