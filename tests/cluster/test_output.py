"""What ranks write: line by line, with their rank, as it comes, and never too much of it."""

import os
import socket
import subprocess
import sys
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from labkit.cluster.here.channel import Channel
from labkit.cluster.here.local import RankPipes
from labkit.cluster.ranks import output
from labkit.cluster.ranks.output import Output


def lines_of(*pieces):
    """The lines that such pieces become."""
    kept = Output(1, show=False)
    for piece in pieces:
        kept.take(0, "out", piece, 1.0)
    kept.end(0, 2.0)
    return [line.text for line in kept.lines()]


@given(st.lists(st.integers(0, 18)))
def test_lines_are_whole_wherever_they_were_cut(cuts):
    text = "first\nsecönd\n\nlast".encode()
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert lines_of(*pieces) == ["first", "secönd", "", "last"]


def test_a_progress_bar_counts_as_its_last_state_and_an_endless_line_is_cut():
    assert lines_of(b"\r 1/10", b"\r 2/10\r10/10\n", b"done\r\n") == ["10/10", "done"]
    assert [len(text) for text in lines_of(b"x" * (3 * output.LONGEST))] == [output.LONGEST] * 3


def test_that_a_rank_has_no_gpu_is_no_error():
    kept = Output(1, show=False)
    for line in (
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "E0000 00:00:1.5    3558 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: "
        "Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
        "E0000 00:00:1795706469.000000    3558 ring_alg.cc:291] Aborting RingReduce",
    ):
        kept.take(0, "err", f"{line}\n".encode(), 1.0)
    assert [line.text[-10:] for line in kept.lines()] == ["RingReduce"]


def test_a_flood_is_kept_in_part_and_not_shown(capsys):
    shown = Output(2, show=True)
    line = b"x" * 99 + b"\n"
    for _ in range(100):
        shown.take(0, "out", line * 100, 1.0)
    shown.take(1, "out", b"still here\n", 2.0)
    text = capsys.readouterr().out
    assert output.SHOWN <= len(text) < output.SHOWN + 300
    assert text.endswith("rank 0: (more in c.output(0))\nrank 1: still here\n")
    assert shown.text(0) == line.decode() * 10_000
    shown.take(0, "out", b"one more\n", 2.0)
    assert shown.text(0).startswith("(1 earlier lines are not kept)\n")
    assert shown.lines()[-1].text == "still here"


def test_what_was_written_before_a_result_comes_before_it():
    pipes, (out, *others, channel, stack) = RankPipes.made(0)
    with socket.socket(fileno=channel) as end:
        os.write(out, b"my last words")
        Channel(end).send("returned", b"")
        events = pipes.read(pipes.channel.fileno())
        for file in [*pipes.files]:
            pipes.close(file)
    for file in (out, *others, stack):
        os.close(file)
    assert [(one.what, one.value) for one in events] == [
        ("out", b"my last words"),
        ("returned", b""),
    ]


def test_what_a_library_or_a_child_writes_is_of_the_rank_also_its_last_words(four, capfd):
    def writes(rank):
        os.write(1, b"by the system\n")
        subprocess.run(["echo", "by a child"])
        sys.stdout.write("my last words")
        if rank == 0:
            os._exit(1)
        raise ValueError

    outcome = four.start(writes).finish()
    found = capfd.readouterr().out.splitlines()
    for rank in range(4):
        words = ["by the system", "by a child", "my last words"]
        assert [line.text for line in outcome.lines if line.rank == rank] == words
        assert [line for line in found if line.startswith(f"rank {rank}: ")] == [
            f"rank {rank}: {text}" for text in words
        ]


def test_ten_megabytes_do_not_block_a_rank(four, capsys):
    def floods(rank):
        for number in range(100_000 if rank == 1 else 0):
            print(f"{number:99d}")
        return rank

    assert four.run(floods) == [0, 1, 2, 3]
    assert four.output(1).endswith(f"{99_999:99d}\n")
    assert len(capsys.readouterr().out) < output.SHOWN + 1000
