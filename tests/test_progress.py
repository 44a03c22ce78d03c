"""The progress line is a courtesy: late, rare, gone at the end, and never in the way."""

from __future__ import annotations

import os
import sys

import pytest

from labkit import progress as room


@pytest.fixture
def seen(monkeypatch, capsys):
    """A terminal whose clock stands still until it is moved."""
    now = [0.0]
    monkeypatch.setattr(room.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(room, "_wanted", lambda: True)
    return now, lambda: capsys.readouterr().err


def test_it_appears_only_when_something_takes_long_and_leaves_no_trace(seen):
    now, written = seen
    line = room.Line()
    line.show("early")
    assert written() == ""
    now[0] = 2.0
    line.show("round 3 of 20, about 12 s left")
    line.show("too soon after the last")
    assert written() == "\rround 3 of 20, about 12 s left"
    line.erase()
    assert written() == "\r" + " " * 30 + "\r"


def test_a_shorter_text_covers_the_longer_one_before_it(seen):
    now, written = seen
    line = room.Line()
    for now[0], text in ((2.0, "four and twenty"), (3.0, "four")):
        line.show(text)
    assert written().endswith("\rfour           ")


def test_it_estimates_the_time_left(seen):
    """A quarter in 10 seconds: 30 more."""
    now, written = seen
    with room.progress("drawing", 100) as advance:
        now[0] = 10.0
        advance(25)
    first, line, blank, end = written().split("\r")
    assert (first, end) == ("", "")
    assert line == "drawing: 25 %, about 30.0 s left"
    assert blank == " " * len(line)


def test_without_a_total_it_says_only_what_is_going_on(seen):
    now, written = seen
    with room.progress("waiting") as advance:
        now[0] = 10.0
        advance(0)
    assert written().startswith("\rwaiting\r")


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("LABKIT_PROGRESS", "")
    assert room._wanted()
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    assert not room._wanted()


def test_a_broken_stderr_costs_nothing(seen, monkeypatch):
    now, _ = seen
    monkeypatch.setattr(sys, "stderr", None)
    with room.progress("drawing", 10) as advance:
        now[0] = 10.0
        advance(5)


def test_in_a_notebook_it_is_an_output_of_its_own_and_nothing_on_red_ground(monkeypatch):
    """What stays is one empty output; what was printed around it is as it was."""
    from nbclient import NotebookClient
    from nbformat import v4

    code = (
        "from labkit import progress as room\n"
        "room.SILENT = room.APART = 0.0\n"
        "print('before')\n"
        "with room.progress('waiting', 4) as advance:\n"
        "    advance(1)\n"
        "    advance(3)\n"
        "print('after')"
    )
    notebook = v4.new_notebook(cells=[v4.new_code_cell(code)])
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")  # the kernel of this environment
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.execute(env={**os.environ, "LABKIT_PROGRESS": ""})
    printed = [one for one in notebook.cells[0].outputs if one.output_type == "stream"]
    shown = [one for one in notebook.cells[0].outputs if one.output_type == "display_data"]
    assert {one.name for one in printed} == {"stdout"}
    assert "".join(one.text for one in printed) == "before\nafter\n"
    assert [one.data["text/plain"] for one in shown] == [""]
