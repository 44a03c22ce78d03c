"""The shape that the messages of a run form, as the player's stage shows it: a spot for each rank.

A ring, a tree, a star, two levels or, without any of these, a circle, in a square from 0 to 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import cos, pi, sin
from typing import Any, TypeAlias

Sent: TypeAlias = tuple[int, int, int]  # step, source, dest
Shape: TypeAlias = dict[str, Any]
MOST = 16  # ranks on a stage


def stage(ranks: int, steps: int, messages: Sequence[Sent]) -> Shape | None:
    """Returns the shape of a run that the player shows on its stage, or None."""
    return shape(ranks, messages) if 1 < ranks <= MOST and steps else None


def shape(ranks: int, messages: Sequence[Sent]) -> Shape:
    """Returns its kind and spots, and what follows from it: `root`, `direction` or `size`.

    `messages` are in the order of their steps.
    """
    firsts: dict[frozenset[int], Sent] = {}  # of each pair of ranks
    for one in messages:
        firsts.setdefault(frozenset(one[1:]), one)
    parents = _parents(ranks, list(firsts.values()))
    return (
        _ring(ranks, messages, len(firsts))
        or _levels(ranks, messages, parents)
        or (parents and _tree(ranks, parents))
        or {"kind": "circle", "spots": _around(ranks)}
    )


def _around(count: int) -> list[tuple[float, float]]:
    """Rank 0 at the top, the next one to the right; of two, one at each side."""
    first = pi if count == 2 else pi / 2
    angles = [2 * pi * i / count - first for i in range(count)]
    return [(0.5 + 0.5 * cos(one), 0.5 + 0.5 * sin(one)) for one in angles]


def _ring(ranks: int, messages: Sequence[Sent], pairs: int) -> Shape | None:
    """Each rank has messages with its two neighbours, and with no other rank.

    The direction is 1 or -1 where all messages go the same way round, else 0.
    """
    shifts = {(dest - source) % ranks for _, source, dest in messages}
    if ranks < 3 or pairs < ranks or not shifts <= {1, ranks - 1}:
        return None
    direction = 0 if len(shifts) > 1 else 1 if 1 in shifts else -1
    return {"kind": "ring", "spots": _around(ranks), "direction": direction}


def _parents(ranks: int, firsts: Sequence[Sent]) -> dict[int, int]:
    """By rank, its parent: where first messages all go towards one rank, or all come from it."""
    up = {source: dest for _, source, dest in firsts}
    down = {dest: source for _, source, dest in firsts}
    for parents in (up, down):
        if len(firsts) == len(parents) == ranks - 1 and not _is_round(parents):
            return parents
    return {}


def _is_round(parents: dict[int, int]) -> bool:
    """Whether the way up from some rank has no end."""
    above = list(parents)
    for _ in parents:
        above = [parents[rank] for rank in above if rank in parents]
    return any(rank in parents for rank in above)


def _tree(ranks: int, parents: dict[int, int]) -> Shape | None:
    """A star, with its root in the middle, if all other ranks are the root's children."""
    (root,) = set(range(ranks)) - set(parents)
    children = [[one for one in range(ranks) if parents.get(one) == rank] for rank in range(ranks)]
    if ranks > 3 and len(children[root]) == ranks - 1:
        spots = _around(ranks - 1)
        lowest = max(y for _, y in spots)
        spots = [(x, y / lowest) for x, y in spots]
        return {"kind": "star", "root": root, "spots": [*spots[:root], (0.5, 0.5), *spots[root:]]}
    places: dict[int, tuple[float, int]] = {}
    leaves = 0

    def place(rank: int, depth: int) -> float:
        nonlocal leaves
        below = [place(child, depth + 1) for child in children[rank]]
        x = (below[0] + below[-1]) / 2 if below else float(leaves)
        leaves += not below
        places[rank] = x, depth
        return x

    place(root, 0)
    deepest = max(depth for _, depth in places.values())
    if leaves == 1 or deepest > 4:  # a chain; or too deep to be drawn
        return None
    across = [places[rank] for rank in range(ranks)]
    spots = [(x / (leaves - 1), depth / deepest) for x, depth in across]
    return {"kind": "tree", "root": root, "spots": spots}


def _levels(ranks: int, messages: Sequence[Sent], parents: dict[int, int]) -> Shape | None:
    """Groups of `size` neighbouring ranks, in rows or columns."""
    sizes = (one for one in range(2, ranks) if ranks % one == 0)
    size = next((one for one in sizes if _are_groups(one, ranks, messages, parents)), 0)
    if not size:
        return None
    count = ranks // size
    spots = [(rank // size / (count - 1), rank % size / (size - 1)) for rank in range(ranks)]
    if count < size:
        spots = [(along, across) for across, along in spots]
    return {"kind": "levels", "spots": spots, "size": size}


def _are_groups(
    size: int, ranks: int, messages: Sequence[Sent], parents: dict[int, int]
) -> bool:  # fmt: skip
    """Each rank first has messages inside its group, then perhaps between them, then inside."""
    calls = []
    for rank in range(ranks):
        ways = ((step, "a" if a // size == b // size else "b")
                for step, a, b in messages if rank in (a, b))  # fmt: skip
        calls.append("".join(way for _, way in sorted(ways)))
    if not any("b" in one for one in calls):
        return False
    if not parents:
        return all(re.fullmatch("a+(b+a+)?", one) for one in calls)
    # A tree has two levels where each group is a star of at least three.
    inside = [parent for rank, parent in parents.items() if rank // size == parent // size]
    stars = size > 2 and len(inside) == ranks - ranks // size and len(set(inside)) == ranks // size
    return stars and all(re.fullmatch("a*b*a*", one) for one in calls)
