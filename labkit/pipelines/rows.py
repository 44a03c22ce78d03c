"""The rows of a schedule: what a piece is, what each row must have, and an order that can run.

>>> checked([[("F", 0), ("B", 0)], [("B", 0), ("F", 0)]])
Traceback (most recent call last):
labkit.kinds.LabError: Rank 1 has B of micro-batch 0 before its F. Move that B behind it.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from labkit.kinds import LabError

Piece: TypeAlias = tuple[str | int, ...]  # ("F", 3), or with several chunks on a rank ("F", 3, 1)
Rows: TypeAlias = list[list[Piece]]
# The (rank, chunk) of each stage of the model, in the order in which a micro-batch meets them.
StagePath: TypeAlias = tuple[tuple[int, int], ...]
KINDS = ("F", "B", "W")


class Run(NamedTuple):
    """A piece in the order of running, with numbers in place of names, for the clock."""

    rank: int
    kind: int  # of KINDS
    number: int
    needs: int  # the number of the piece whose result it takes; -1 for the first stage's F
    crosses: bool  # whether that result comes from another rank


def short(piece: Piece) -> str:
    """Returns a piece as pictures name it: F3, and F3.1 for its chunk 1."""
    return f"{piece[0]}{'.'.join(map(str, piece[1:]))}"


def chunk_of(piece: Piece) -> int:
    """Returns the chunk of the rank's layers that it runs through."""
    return int(piece[2]) if len(piece) > 2 else 0


def count(rows: Rows) -> tuple[int, int]:
    """Returns the number of micro-batches, and of chunks on each rank."""
    micro_batches = 1 + max(int(piece[1]) for row in rows for piece in row)
    return micro_batches, 1 + max(chunk_of(piece) for row in rows for piece in row)


def round_robin(rows: Rows) -> tuple[StagePath, ...]:
    """Returns the usual path: stage k of the model is on rank k mod p."""
    chunks = range(count(rows)[1])
    return (tuple((rank, chunk) for chunk in chunks for rank in range(len(rows))),)


def checked(rows: Any, paths: Sequence[StagePath] = ()) -> tuple[Rows, tuple[StagePath, ...]]:
    """Returns a copy of the rows, each with each of its pieces once, and F, B and W in this order.

    And the paths: micro-batch m takes path m mod their number.
    """
    try:
        found = [[_piece(rank, piece) for piece in row] for rank, row in enumerate(rows)]
    except TypeError:
        found = []
    if not any(found):
        raise LabError(
            "A schedule is a list with a row for each rank, and a row a list of pieces: "
            f'[[("F", 0), ("B", 0)], …], got {str(rows)[:60]}.'
        )
    size, chunks = count(found)
    end = 2 + (chunks > 1)  # of a piece: all of them name their chunk, or none does
    found = [[(*piece, 0)[:end] for piece in row] for row in found]
    kinds = KINDS if any(piece[0] == "W" for row in found for piece in row) else KINDS[:2]
    paths = tuple(map(tuple, paths)) or round_robin(found)
    for rank in range(len(found)):
        mine = [[chunk for owner, chunk in path if owner == rank] for path in paths]
        wanted = ([(kind, m, chunk)[:end] for kind in kinds]
                  for m in range(size) for chunk in mine[m % len(paths)])  # fmt: skip
        _check_row(rank, found, wanted)
    return found, paths


def in_order(rows: Rows, paths: tuple[StagePath, ...]) -> list[Run]:
    """Returns all pieces in an order in which each comes after what it needs."""
    size, _ = count(rows)
    pieces = [_runs(rank, row, paths, size) for rank, row in enumerate(rows)]
    done: set[int] = {-1}
    waiting: dict[int, int] = {}  # which rank waits for a piece
    reached = [0] * len(rows)
    order: list[Run] = []
    ranks = list(range(len(rows)))
    while ranks:
        rank = ranks.pop()
        row, at = pieces[rank], reached[rank]
        while at < len(row) and row[at].needs in done:
            one = row[at]
            done.add(one.number)
            order.append(one)
            at += 1
            if one.number in waiting:
                ranks.append(waiting.pop(one.number))
        reached[rank] = at
        if at < len(row):
            waiting[row[at].needs] = rank
    if len(order) < sum(map(len, pieces)):
        raise _deadlock(rows, pieces, reached)
    return order


def _piece(rank: int, piece: Any) -> Piece:
    kind, *numbers = piece if isinstance(piece, (tuple, list)) and piece else ("",)
    try:
        found = [operator.index(one) for one in numbers]
    except TypeError:
        found = []
    if kind not in KINDS or len(found) not in (1, 2) or min(found) < 0:
        raise LabError(
            f'Rank {rank} has the piece {piece!r}. A piece is ("F", micro-batch), ("B", '
            'micro-batch) or ("W", micro-batch), with a chunk of the model as a third number where '
            "a rank holds several."
        )
    return (kind, *found)


def _check_row(rank: int, rows: Rows, wanted: Iterable[Iterable[Piece]]) -> None:
    place = {piece: number for number, piece in enumerate(rows[rank])}
    if len(place) < len(rows[rank]):
        twice = next(piece for i, piece in enumerate(rows[rank]) if place[piece] != i)
        raise LabError(f"Rank {rank} has {_words(rank, twice, rows)} twice. Remove one.")
    for pieces in wanted:
        before = -1
        for piece in pieces:
            after = place.get(piece)
            if after is not None and after > before:
                before = after
                continue
            what = _words(rank, piece, rows)
            if after is None:
                raise LabError(f"Rank {rank} has no {what}. Add it to its row.")
            first = KINDS[KINDS.index(str(piece[0])) - 1]
            raise LabError(
                f"Rank {rank} has {what} before its {first}. Move that {piece[0]} behind it."
            )


def _runs(rank: int, row: list[Piece], paths: tuple[StagePath, ...], size: int) -> list[Run]:
    """The row in numbers: 3 kinds of M micro-batches for the first stage, then the second."""
    found, stage_size = [], 3 * size
    # By path, kind and chunk: the kind, the number, the step to what it needs, whether it crosses.
    steps: dict[tuple[int, str, int], tuple[int, int, int, bool]] = {}
    for which, path in enumerate(paths):
        for stage, (owner, chunk) in enumerate(path):
            if owner != rank:
                continue
            # F takes the previous stage's F; B the next one's B, or the last its own F; W its B.
            is_last = stage == len(path) - 1
            sources = (path[stage - 1] if stage else path[0], path[stage + (not is_last)])
            needs = (-stage_size if stage else 0, -size if is_last else stage_size, -size)
            crosses = (sources[0][0] != rank, sources[1][0] != rank, False)
            for kind, name in enumerate(KINDS):
                number = stage * stage_size + kind * size
                steps[which, name, chunk] = kind, number, needs[kind], crosses[kind]
    for piece in row:
        m = int(piece[1])
        kind, number, step, crossing = steps[m % len(paths), str(piece[0]), chunk_of(piece)]
        found.append(Run(rank, kind, number + m, number + m + step if step else -1, crossing))
    return found


def _deadlock(rows: Rows, pieces: list[list[Run]], reached: list[int]) -> LabError:
    """Returns an error that names the ranks that wait for one another."""
    owner = {one.number: (one.rank, piece) for row, names in zip(pieces, rows, strict=True)
             for one, piece in zip(row, names, strict=True)}  # fmt: skip
    rank = next(r for r in range(len(rows)) if reached[r] < len(pieces[r]))
    path: list[int] = []
    while rank not in path:
        path.append(rank)
        rank = owner[pieces[rank][reached[rank]].needs][0]
    waits = []
    for one in path[path.index(rank) :]:
        other, needed = owner[pieces[one][reached[one]].needs]
        mine = _words(one, rows[one][reached[one]], rows)
        theirs = f"{_words(other, needed, rows)} on rank {other}"
        waits.append(f"rank {one} waits, before {mine}, for {theirs}")
    return LabError(
        f"The schedule deadlocks: {'; '.join(waits)}. In one of these rows, move what the other "
        "rank waits for forward."
    )


def _words(rank: int, piece: Piece, rows: Rows) -> str:
    chunk = chunk_of(piece)
    where = f" of chunk {chunk}"
    return f"{piece[0]} of micro-batch {piece[1]}{where if count(rows)[1] > 1 else ''}"
