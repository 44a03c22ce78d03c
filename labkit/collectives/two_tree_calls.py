"""The calls of the double binary tree: it posts messages ahead, so it has no rounds."""

from __future__ import annotations

from typing import NamedTuple

from labkit.collectives.events import Post, Transfer
from labkit.collectives.programs.double_tree import parent_of

__all__ = ["two_tree_calls"]


def two_tree_calls(
    ranks: int, nbytes: float, pieces: int
) -> tuple[list[Transfer], list[list[Post]]]:
    """The messages of `double_binary_tree_all_reduce`, and each rank's calls in their order."""
    desk = _Desk(ranks, nbytes / 2 / pieces)
    families = [_families(ranks, shift) for shift in (0, 1)]
    for rank in range(ranks):
        trees = [Place(tree, *family[rank]) for tree, family in enumerate(families)]
        trees.sort(key=lambda place: len(place.children))
        _up(desk, rank, trees, pieces)
        trees.reverse()
        _down(desk, rank, trees, pieces)
    return desk.transfers(), desk.calls


class Place(NamedTuple):
    """Where a rank stands in one of the two trees."""

    tree: int
    parent: int | None
    children: list[int]


def _up(desk: _Desk, rank: int, trees: list[Place], pieces: int) -> None:
    sends = []
    for tree, parent, children in trees:
        for piece in range(pieces):
            for child in children:
                desk.call(rank, desk.message("up", tree, piece, child, rank))
            if parent is not None:
                sends.append(desk.message("up", tree, piece, rank, parent))
                desk.call(rank, sends[-1], waits=False)
    for send in sends:
        desk.wait(rank, send)


def _down(desk: _Desk, rank: int, trees: list[Place], pieces: int) -> None:
    for tree, parent, _ in trees:
        if parent is not None:
            for piece in range(pieces):
                desk.call(rank, desk.message("down", tree, piece, parent, rank), waits=False)
    for tree, parent, children in trees:
        for piece in range(pieces):
            if parent is not None:
                desk.wait(rank, desk.message("down", tree, piece, parent, rank))
            for child in children:
                desk.call(rank, desk.message("down", tree, piece, rank, child))


class _Desk:
    """Where calls are written down; both ends of a message find it by its key."""

    def __init__(self, ranks: int, size: float) -> None:
        self.calls: list[list[Post]] = [[] for _ in range(ranks)]
        self.size = size
        self.made = 0
        self.numbers: dict[tuple[object, ...], int] = {}
        # Of each message: its two ranks, whether it is added in, and the calls that posted it.
        self.ends: list[tuple[int, int, bool]] = []
        self.posted: list[dict[int, int]] = []

    def message(self, way: str, tree: int, piece: int, source: int, dest: int) -> int:
        key = way, tree, piece, source, dest
        if key not in self.numbers:
            self.numbers[key] = len(self.ends)
            self.ends.append((source, dest, way == "up"))
            self.posted.append({})
        return self.numbers[key]

    def call(self, rank: int, message: int, waits: bool = True) -> None:
        self.posted[message][rank] = self.made
        self._add(rank, (message,), (message,) if waits else ())

    def wait(self, rank: int, message: int) -> None:
        self._add(rank, (), (message,))

    def _add(self, rank: int, begins: tuple[int, ...], awaits: tuple[int, ...]) -> None:
        self.calls[rank].append(Post(self.made, begins, awaits, None))
        self.made += 1

    def transfers(self) -> list[Transfer]:
        return [
            Transfer(source, dest, self.size, added, by[source], by[dest])
            for (source, dest, added), by in zip(self.ends, self.posted, strict=True)
        ]


def _families(ranks: int, shift: int) -> list[tuple[int | None, list[int]]]:
    """Parent and children of every rank in the tree that is turned by `shift` ranks."""
    families: list[tuple[int | None, list[int]]] = []
    children: list[list[int]] = [[] for _ in range(ranks)]
    for rank in range(ranks):
        above = parent_of((rank + shift) % ranks + 1, ranks)
        parent = None if above is None else (above - 1 - shift) % ranks
        families.append((parent, children[rank]))
        if parent is not None:
            children[parent].append(rank)
    return families
