"""Which line of a program a sentence names, wherever the program was written."""

import re
import textwrap
from functools import partial

import pytest

from labkit.collectives import run
from labkit.kinds import LabError

CELL = """
    def helper(comm, buffer):
        comm.Recv(buffer, 1 - comm.rank)

    def program(comm, buffer):
        helper(comm, buffer)
    """


def said(program, **options):
    with pytest.raises(LabError) as caught:
        run(program, ranks=2, **options)
    return str(caught.value)


def typed(text, name="<stdin>"):
    """What stdin, `python -c` and exec make of a program: nobody can read its source."""
    there = {}
    exec(compile(textwrap.dedent(text), name, "exec"), there)
    return there["program"]


def test_a_line_has_its_number_where_no_source_can_be_read():
    assert "rank 0 waits in Recv from rank 1 (line 3)" in said(typed(CELL))


def test_a_comprehension_without_source_is_a_line_of_its_function():
    text = """
    def program(comm, buffer):
        [comm.Recv(buffer, 1 - comm.rank) for _ in range(2)]
    """
    assert "rank 0 waits in Recv from rank 1 (line 3)" in said(typed(text))


def test_a_call_that_cannot_be_names_its_line():
    text = """
    def program(comm, buffer):
        comm.Send(buffer, 7)
    """
    assert said(typed(text)).startswith("Rank 0's Send (line 3) names rank 7.")


class Ring:
    def __call__(self, comm, buffer):
        comm.Send(buffer, (comm.rank + 1) % comm.size)

    def method(self, comm, buffer):
        self(comm, buffer)


@pytest.mark.parametrize("program", [Ring(), Ring().method, partial(Ring())])
def test_an_object_that_can_be_called_has_lines_too(program):
    line = Ring.__call__.__code__.co_firstlineno + 1
    assert f"rank 0 waits in Send to rank 1 (line {line})" in said(program)


def test_a_run_without_source_is_drawn_all_the_same(tmp_path):
    text = """
    def program(comm, buffer):
        comm.Sendrecv(buffer.copy(), 1 - comm.rank, recvbuf=buffer, source=1 - comm.rank)
    """
    trace = run(typed(text), ranks=2)
    assert trace.sources == ()
    assert "text/html" in trace._repr_mimebundle_()[0]
    assert re.search(r'"call": ?"Sendrecv"', trace.to_chrome(tmp_path / "a.json").read_text())
