"""What ranks write: line by line, with their rank, as it comes, and never too much of it."""

import sys

import pytest

import labkit
from labkit import plain
from labkit.cluster import output
from labkit.cluster.output import Line, Output


def lines_of(*pieces, stream="out"):
    """The lines that such pieces become, and what is shown of them."""
    kept = Output(1, show=False)
    for piece in pieces:
        kept.take(0, stream, piece, 1.0)
    kept.end(0, 2.0)
    return [line.text for line in kept.lines()]


def test_lines_are_whole_wherever_they_were_cut():
    text = "first\nsecönd\n\nlast".encode()
    for place in range(len(text)):
        assert lines_of(text[:place], text[place:]) == ["first", "secönd", "", "last"]


def test_a_progress_bar_counts_as_its_last_state():
    assert lines_of(b"\r 1/10", b"\r 2/10\r10/10\n", b"done\r\n") == ["10/10", "done"]


def test_bytes_that_are_no_text_are_shown_as_such():
    assert lines_of(b"\xff\xfe ok\n") == ["\ufffd\ufffd ok"]


def test_a_line_without_end_is_cut():
    assert [len(text) for text in lines_of(b"x" * (3 * output.LONGEST))] == [output.LONGEST] * 3


def test_each_line_is_shown_with_its_rank_where_it_was_written(capsys):
    shown = Output(3, show=True)
    shown.take(2, "out", b"to stdout\nbegun", 0.5)
    shown.take(1, "err", b"to stderr\n", 0.6)
    found = capsys.readouterr()
    assert (found.out, found.err) == ("rank 2: to stdout\n", "rank 1: to stderr\n")
    shown.end(2, 0.7)
    assert capsys.readouterr().out == "rank 2: begun\n"


def test_a_flood_is_kept_and_not_shown(capsys):
    shown = Output(2, show=True)
    line = b"x" * 99 + b"\n"
    for _ in range(100):
        shown.take(0, "out", line * 100, 1.0)
    shown.take(1, "out", b"still here\n", 2.0)
    text = capsys.readouterr().out
    assert output.SHOWN <= len(text) < output.SHOWN + 300
    assert text.endswith("rank 0: (more; all of it in c.output(0))\nrank 1: still here\n")
    assert text.count("more;") == 1
    assert shown.text(0) == line.decode() * 10_000
    assert shown.text(1) == "still here\n"
    kept = shown.lines()
    assert len(kept) == output.KEPT_LINES * 2 + 1
    assert kept[-1].text == "still here"


def test_what_is_kept_has_a_bound(monkeypatch):
    monkeypatch.setattr(output, "KEPT", 10)
    kept = Output(1, show=False)
    kept.take(0, "out", b"0123456789abc\n", 0.0)
    assert kept.text(0) == "0123456789\n(cut here: rank 0 wrote 14 bytes)\n"


def test_a_line_can_be_stored():
    line = Line(1.5, 2, "out", "step 3")
    assert plain.load(plain.dump(line)) == line
    assert str(line) == "rank 2: step 3"


@pytest.fixture(scope="module")
def two():
    with labkit.cluster(ranks=2) as c:
        yield c


def test_output_comes_while_the_program_runs(two):
    def asks(rank):
        print("begun", rank, end="")  # no line end, nothing flushed
        while True:
            pass

    going = two.start(asks, show=False)
    for rank in range(2):
        assert going.wait_for(f"begun {rank}", rank=rank).text == f"begun {rank}"
    going.stop()


def test_what_a_library_or_a_child_writes_is_of_the_rank(two, capfd):
    def writes(rank):
        import os
        import subprocess

        os.write(1, b"by the system\n")
        os.write(2, b"on stderr\n")
        subprocess.run(["echo", "by a child"])

    two.run(writes)
    found = capfd.readouterr()
    for rank in range(2):
        mine = [line for line in found.out.splitlines() if line.startswith(f"rank {rank}: ")]
        assert mine == [f"rank {rank}: by the system", f"rank {rank}: by a child"]
        assert f"rank {rank}: on stderr\n" in found.err
        assert "by a child" in two.output(rank)


def test_the_last_words_of_a_rank_that_dies_are_heard(two):
    def dies(rank):
        import os

        sys.stdout.write("my last words")
        os._exit(1)

    outcome = two.start(dies, show=False).finish()
    assert {line.text for line in outcome.lines} == {"my last words"}


def test_ten_megabytes_stall_nobody(two, capsys):
    def floods(rank):
        for number in range(100_000):
            print(f"{number:99d}")
        return rank

    assert two.run(floods) == [0, 1]
    assert len(two.output(0)) == len(two.output(1)) == 10_000_000
    assert len(capsys.readouterr().out) < 2 * output.SHOWN + 1000


def test_no_input_is_waited_for(two):
    def asks(rank):
        try:
            return input("your name? ")
        except EOFError:
            return "nobody"

    assert two.run(asks) == ["nobody", "nobody"]
