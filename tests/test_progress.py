"""The progress line: late, rare, erased at the end."""

from __future__ import annotations

import io
import os
import time
from contextlib import redirect_stderr

import pytest

from labkit.progress import ProgressLine, progress


class Terminal(io.StringIO):
    tty = True

    def isatty(self):
        return self.tty

    def written(self):
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


@pytest.fixture
def now(monkeypatch):
    """A clock that stands still until it is moved."""
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_it_appears_only_when_something_takes_long_and_is_erased(now):
    with redirect_stderr(Terminal()) as terminal:
        line = ProgressLine()
        line.show("early")
        assert terminal.written() == ""
        now[0] = 2.0
        line.show("round 3 of 20")
        line.show("too soon after the last")
        assert terminal.written() == "\rround 3 of 20"
        now[0] = 3.0
        line.show("a shorter")
        assert terminal.written() == "\ra shorter    "
        line.erase()
        assert terminal.written() == "\r" + " " * 13 + "\r"


@pytest.mark.parametrize(
    ("total", "text"),
    [(100, "drawing: 25 %, about 30.0 s left"), (0, "drawing")],  # a quarter in 10 seconds
)
def test_it_estimates_the_time_left(now, total, text):
    with redirect_stderr(Terminal()) as terminal, progress("drawing", total) as advance:
        now[0] = 10.0
        advance(25)
    assert terminal.written() == f"\r{text}\r{' ' * len(text)}\r"


def test_it_is_off_where_the_user_or_a_log_file_wants_none(now, monkeypatch):
    line = ProgressLine()
    now[0] = 2.0
    with redirect_stderr(Terminal()) as terminal:
        monkeypatch.setenv("LABKIT_PROGRESS", "off")
        line.show("drawing")
        monkeypatch.delenv("LABKIT_PROGRESS")
        terminal.tty = False
        line.show("drawing")
        line.erase()
    assert terminal.written() == ""


def test_in_a_notebook_nothing_of_it_is_left_to_see(monkeypatch):
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
    outputs = notebook.cells[0].outputs
    printed = [one for one in outputs if one.output_type == "stream"]
    assert {one.name for one in printed} == {"stdout"}
    assert "".join(one.text for one in printed) == "before\nafter\n"
    # JupyterLab draws nothing for an output without data.
    assert [one.data for one in outputs if one.output_type == "display_data"] == [{}]
