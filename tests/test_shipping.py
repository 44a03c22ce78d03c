"""Values and programs that go to another Python, and come back."""

import linecache
import os
import subprocess
import sys
import threading
import types
from functools import partial
from pathlib import Path

import pytest

from labkit.kinds import LabError
from labkit.shipping import LARGEST, FunctionSource, copies, pack_program, unpack

OFFSET = 3


def shifted(value):
    return value + OFFSET


def program(rank, factor):
    return shifted(rank * factor)


def in_another_python(packed):
    """What the packed program returns for rank 2 in a fresh interpreter."""
    code = (
        "import sys; from labkit.shipping import unpack_program, pack\n"
        "function, args = unpack_program(sys.stdin.buffer.read())\n"
        "sys.stdout.buffer.write(pack(function(2, *args), 'it'))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], input=packed, capture_output=True, timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr.decode()
    return unpack(answer.stdout)


def a_cell(text, name="cell_1.py"):
    """What IPython makes of a cell: a function of __main__ whose source only linecache has."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = types.ModuleType("__main__")
    exec(compile(text, name, "exec"), module.__dict__)
    return module


def test_a_program_finds_its_functions_and_values_there():
    assert in_another_python(pack_program(program, (10,))) == 23


def test_the_source_of_a_cell_goes_along():
    cell = a_cell("import inspect\ndef program(rank):\n    return inspect.getsource(program)\n")
    assert in_another_python(pack_program(cell.program)).startswith("def program(rank):")


def test_a_function_on_any_line_of_a_cell_is_sent_as_its_source_with_its_modules():
    body = "    return sys.version, path.sep, sys._getframe().f_lineno\n"
    cell = a_cell(f"\n\ndef program(rank):\n{body}")
    vars(cell).update(sys=sys, path=os.path)  # another cell imported them
    returned = in_another_python(pack_program(FunctionSource.of(cell.program)))
    assert returned == (sys.version, "/", 4)


def test_a_class_of_a_cell_is_the_same_when_it_comes_back():
    cell = a_cell("class Thing:\n    pass\ndef program(rank):\n    return Thing()\n", "cell_2.py")
    sys_main = sys.modules["__main__"]
    sys.modules["__main__"] = cell
    try:
        assert type(in_another_python(pack_program(cell.program))) is cell.Thing
    finally:
        sys.modules["__main__"] = sys_main


def test_folder_and_path_are_those_of_the_session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))

    def where(rank):
        return str(Path.cwd()), sys.path[0]

    assert in_another_python(pack_program(where)) == (str(tmp_path), str(tmp_path / "mine"))


def test_the_name_that_cannot_be_sent_is_named():
    lock = threading.Lock()

    def locked_here(rank):
        return lock.locked()

    def calls(rank):
        return locked_here(rank)

    for program in (locked_here, calls):
        with pytest.raises(LabError, match=f"program {program.__name__} uses `lock`"):
            pack_program(program)


def test_the_argument_that_cannot_be_sent_is_named():
    with pytest.raises(LabError, match="Argument 2 of program"):
        pack_program(program, (1, (x for x in "ab")))


def test_a_program_may_name_a_room_of_labkit():
    """`labkit.cluster` is a module with a class of its own, so that it can be called."""
    space = {"__name__": "__main__"}
    exec("import labkit\n\ndef told(rank):\n    return labkit.cluster.__name__", space)
    assert in_another_python(pack_program(space["told"])) == "labkit.cluster"


class OnceOnly:
    """It cannot be made again."""

    def __setstate__(self, state):
        raise OSError(state)

    def __getstate__(self):
        return {"it": "is gone"}


@pytest.mark.parametrize(
    ("used", "copied"),
    [([], True), (threading.Lock(), False), (OnceOnly(), False), (bytes(LARGEST // 2), False)],
    ids=["list", "lock", "once only", "large"],
)
def test_copies_share_no_variable_unless_they_cannot_be_made_or_are_large(used, copied):
    programs = copies(partial(lambda value, factor: (used, value * factor), factor=2), 3)
    results = [one(4) for one in programs]
    assert [value for _, value in results] == [8] * 3
    assert [one is used for one, _ in results] == [not copied] * 3
    assert len({id(one) for one, _ in results}) == (3 if copied else 1)
