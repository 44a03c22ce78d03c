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
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from collectives_parts import libraries
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


class Turn(NamedTuple):
    """All contenders, each timed once, and the names of their libraries."""

    timed: bench.Bench
    libraries: dict[str, str]


def turn(plan: dict[str, Any]) -> Turn:
    """MPI and ours in one mpiexec, then each other library that is installed."""
    contenders = (programs.ring_all_reduce, in_buckets, "mpi")
    timed = bench.measure(contenders=contenders, **plan)
    names = dict.fromkeys(timed.contenders, timed.library)
    for name in libraries.LIBRARIES:
        if found := libraries.measure(name, **plan):
            timed = replace(timed, timings=timed.timings + found.timings)
            names[name] = found.library
    return Turn(timed, names)


def results(quick: bool) -> list[Row]:
    """A row for each size and library; a sentence about the promise before the table."""
    sizes = SIZES[:1] if quick else SIZES
    plan = {"ranks": RANKS, "sizes": list(sizes), "rounds": 8, "seconds_per_size": 6.0}
    turns = [turn(plan) for _ in range(1 if quick else 4)]
    first = turns[0].timed
    print(*first.notes(), first.kind, sep="\n")
    if not all(one.timed.correct for one in turns):
        sys.exit("A result was wrong, so that no time means anything.")
    rows = []
    for nbytes in sizes:
        print_table(turns, nbytes)
        for ours in OURS:
            rows += rows_of(turns, ours, nbytes)
        judge(turns, rows, nbytes)
    return rows


def print_table(turns: list[Turn], nbytes: int) -> None:
    print(f"\n{size_text(nbytes)} in each rank's buffer, medians of all calls")
    for name in turns[0].timed.contenders:
        seconds = median(s for one in turns for s in one.timed.timing(name, nbytes).seconds)
        speed = bench.bus_bandwidth(RANKS, nbytes, seconds)
        print(f"  {title(name, turns[0]):52}{seconds_text(seconds):>9}  {bytes_text(speed)}/s")


def rows_of(turns: list[Turn], ours: str, nbytes: int) -> list[Row]:
    what = f"{OURS[ours]}, {size_text(nbytes)}"
    return [
        Row(what, title(name, turns[0]), *ratio(turns, ours, name, nbytes))
        for name in LIBRARIES
        if name in turns[0].libraries
    ]


def ratio(turns: list[Turn], ours: str, theirs: str, nbytes: int) -> tuple[float, float, float]:
    """Bus bandwidth of ours over theirs, which is their time over ours, and its interval."""
    pairs: list[tuple[float, float]] = []
    for one in turns:
        mine, other = (one.timed.timing(name, nbytes).seconds for name in (ours, theirs))
        if theirs == "mpi":
            pairs += zip(mine, other, strict=True)
        elif len(turns) > 1:
            pairs.append((median(mine), median(other)))
        else:
            # One turn: its calls in their order are all there is.
            pairs += zip(mine, other, strict=False)
    found = shift([math.log(other / mine) for mine, other in pairs], CONFIDENCE)
    return math.exp(found.value), math.exp(found.low), math.exp(found.high)


def judge(turns: list[Turn], rows: list[Row], nbytes: int) -> None:
    """Whether the plain ring keeps the promise against the best library, and how surely."""
    what = f"{OURS['ring_all_reduce']}, {size_text(nbytes)}"
    best = min((row for row in rows if row.what == what), key=lambda row: row.ratio)
    word = "reached" if best.ratio >= PROMISED else "MISSED"
    print(
        f"  at least {PROMISED} of the best library ({best.against}): {word}, "
        f"{best.ratio:.2f} ({best.low:.2f}–{best.high:.2f})"
    )


def title(name: str, turn: Turn) -> str:
    if name in OURS:
        return OURS[name]
    library = turn.libraries[name]
    return f"{library}, its ring, in one process" if name == "tensorflow_ring" else library


def size_text(nbytes: int) -> str:
    """As the promise names them: 16 MB."""
    return f"{nbytes >> 20} MB"


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
