"""The names of machines as Slurm writes them: "node[01-03,07],gpu5" are five machines."""

from __future__ import annotations

import re

from labkit.kinds import LabError

__all__ = ["counts_of", "hosts_of"]

MOST = 65_536  # machines in one list: more is a mistake in a bracket
_SPAN = re.compile(r"(\d+)(?:-(\d+))?\Z")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?\Z")


def hosts_of(text: str) -> tuple[str, ...]:
    """Every machine of a node list, in Slurm's order.

    >>> hosts_of("node[01-03,07],gpu5")
    ('node01', 'node02', 'node03', 'node07', 'gpu5')
    """
    parts = _parts(text)
    hosts = [host for part in parts for host in _expanded(part, text)]
    if not hosts:
        raise LabError(f"The node list {text!r} names no machine. Write it as node[01-03],gpu5.")
    return tuple(hosts)


def counts_of(text: str) -> tuple[int, ...]:
    """How many tasks each machine has, from Slurm's short form.

    >>> counts_of("2(x3),1")
    (2, 2, 2, 1)
    """
    counts: list[int] = []
    for part in text.split(","):
        found = _COUNT.match(part.strip())
        if found is None or max(int(found[1]), int(found[2] or 1)) > MOST:
            raise LabError(
                f"The tasks per node are {text!r}, which is not in Slurm's form. "
                "It is written as 2(x3),1: three machines with two tasks, one with one."
            )
        counts += [int(found[1])] * int(found[2] or 1)
    return tuple(counts)


def _parts(text: str) -> list[str]:
    """Cut at the commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise LabError(
            f"The brackets of the node list {text!r} do not match. Write it as node[01-03],gpu5."
        )
    return [part.strip() for part in parts if part.strip()]


def _expanded(part: str, text: str) -> list[str]:
    """node[1-2]a[3-4] is node1a3, node1a4, node2a3, node2a4: the last bracket runs fastest."""
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, tail = rest.partition("]")
    tails = _expanded(tail, text)
    return [f"{head}{number}{end}" for number in _numbers(inside, text) for end in tails]


def _numbers(inside: str, text: str) -> list[str]:
    numbers: list[str] = []
    for span in inside.split(","):
        found = _SPAN.match(span.strip())
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if not 0 <= int(last) - int(first) < MOST:
            raise LabError(
                f"[{inside}] in the node list {text!r} is no list of numbers. "
                "Write spans and numbers, such as [01-03,07]."
            )
        # 08, 09, 10: the zeros in front belong to the name.
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return numbers
