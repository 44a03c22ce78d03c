"""labkit's ring all-reduce over real MPI beside the all-reduce of libraries: 4 ranks, this machine.

The ring is `labkit.collectives.programs.ring_all_reduce`, the program that lectures show: some
fifteen lines of Python that know nothing but `comm.Sendrecv` and numpy. "In buckets" is the same
program called for one part of the buffer after the other, so that a chunk stays in the cache.

- MPI library: MPI_Allreduce of whatever mpiexec starts, in place. It is interleaved with ours in
  one mpiexec: in each round each is called once, in an order drawn anew, and the ratio is
  taken within the round.
- gloo (torch.distributed, where torch is installed) and TensorFlow's own ring run in processes of
  their own, in turns with ours; the ratio is taken between medians of the same turn. There are
  four turns, whose whole span is the interval (87.5 %; the others are 95 %).

The promise: at least 0.9 of the bus bandwidth of the best library.
"""

from __future__ import annotations

import math
import sys
from statistics import median
from typing import Any

from harness import Row, main

from labkit.collectives import bench, programs
from labkit.kinds import bytes_text, seconds_text
from labkit.timing.intervals import shift

RANKS = 4
SIZES = (16 << 20, 64 << 20)
BUCKET = 4 << 20
PROMISED = 0.9
CONFIDENCE = 0.95
LIBRARIES = ("mpi", "tensorflow_ring", "gloo")


def in_buckets(comm: Any, buffer: Any) -> None:
    """The ring, for one part of the buffer after the other."""
    parts = -(-buffer.nbytes // BUCKET)
    for at in range(parts):
        start, stop = (buffer.size * end // parts for end in (at, at + 1))
        programs.ring_all_reduce(comm, buffer[start:stop])


OURS = {"ring_all_reduce": "ring all-reduce", "in_buckets": "ring all-reduce in 4 MB buckets"}
CONTENDERS = (programs.ring_all_reduce, in_buckets, *LIBRARIES)


def results(quick: bool) -> list[Row]:
    """A row for each size and library; a sentence about the promise before the table."""
    sizes = SIZES[:1] if quick else SIZES
    turns = [
        bench.measure(
            ranks=RANKS, sizes=sizes, contenders=CONTENDERS, rounds=8, seconds_per_size=6.0,
        )
        for _ in range(1 if quick else 4)
    ]  # fmt: skip
    if "mpi" in turns[0].left_out:
        sys.exit(f"Without MPI there is nothing to compare. {turns[0].left_out['mpi']}")
    for note in turns[0].notes():
        print(note)
    print(turns[0].kind)
    if not all(turn.correct for turn in turns):
        sys.exit("A result was wrong, so that no time means anything.")
    rows = []
    for nbytes in sizes:
        print_table(turns, nbytes)
        for ours in OURS:
            rows += rows_of(turns, ours, nbytes)
        judge(turns, rows, nbytes)
    return rows


def print_table(turns: list[bench.Bench], nbytes: int) -> None:
    print(f"\n{size_text(nbytes)} in each rank's buffer, medians of all calls")
    for name in turns[0].contenders:
        seconds = median(one for turn in turns for one in turn.timing(name, nbytes).seconds)
        speed = bench.bus_bandwidth("all_reduce", RANKS, nbytes, seconds)
        print(f"  {title(name, turns[0]):52}{seconds_text(seconds):>9}  {bytes_text(speed)}/s")


def rows_of(turns: list[bench.Bench], ours: str, nbytes: int) -> list[Row]:
    what = f"{OURS[ours]}, {size_text(nbytes)}"
    return [
        Row(what, title(name, turns[0]), *ratio(turns, ours, name, nbytes))
        for name in LIBRARIES
        if name in turns[0].contenders
    ]


def ratio(
    turns: list[bench.Bench], ours: str, theirs: str, nbytes: int
) -> tuple[float, float, float]:
    """Bus bandwidth of ours over theirs, which is their time over ours, and its interval."""
    pairs: list[tuple[float, float]] = []
    for turn in turns:
        mine, other = turn.timing(ours, nbytes).seconds, turn.timing(theirs, nbytes).seconds
        if theirs == "mpi":
            pairs += zip(mine, other, strict=True)
        elif len(turns) > 1:
            pairs.append((median(mine), median(other)))
        else:
            # One turn: its calls in their order are all there is.
            pairs += zip(mine, other, strict=False)
    found = shift([math.log(other / mine) for mine, other in pairs], CONFIDENCE)
    return math.exp(found.value), math.exp(found.low), math.exp(found.high)


def judge(turns: list[bench.Bench], rows: list[Row], nbytes: int) -> None:
    """Whether the plain ring keeps the promise against the best library, and how surely."""
    what = f"{OURS['ring_all_reduce']}, {size_text(nbytes)}"
    best = min((row for row in rows if row.what == what), key=lambda row: row.ratio)
    word = "reached" if best.ratio >= PROMISED else "MISSED"
    print(
        f"  at least {PROMISED} of the best library ({best.against}): {word}, "
        f"{best.ratio:.2f} ({best.low:.2f}–{best.high:.2f})"
    )


def title(name: str, turn: bench.Bench) -> str:
    if name in OURS:
        return OURS[name]
    library = turn.libraries[name]
    return f"{library}, its ring, in one process" if name == "tensorflow_ring" else library


def size_text(nbytes: int) -> str:
    """As the promise names them: 16 MB."""
    return f"{nbytes >> 20} MB"


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
