"""What happens in each step of a run: phases, what becomes of each message, and a sentence.

A phase is a row of steps in which all that arrives has the same fate: it is added, or copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from labkit.collectives.contributions import Change, Contributions, Counts
from labkit.collectives.page.message_shape import Shape
from labkit.collectives.records import Message, Record
from labkit.kinds import bytes_text

Cells: TypeAlias = dict[tuple[int, int], Counts | None]  # by rank and cell
GAP = "\u00a0"  # a number and its unit stay on one line


@dataclass(frozen=True)
class Steps:
    """The messages and changes of a run by step; `where` has each rank's place in each step."""

    record: Record
    held: Contributions
    where: Sequence[Sequence[int]]
    shape: Shape | None

    @cached_property
    def messages(self) -> list[list[Message]]:
        """Returns the messages of each step."""
        found: list[list[Message]] = [[] for _ in range(self.record.steps + 1)]
        for one in sorted(self.record.messages, key=lambda one: (one.step, one.number)):
            found[one.step].append(one)
        return found

    @cached_property
    def changes(self) -> list[list[Change]]:
        """Returns the changes of each step."""
        found: list[list[Change]] = [[] for _ in range(self.record.steps + 1)]
        for one in self.held.changes:
            found[one.step].append(one)
        return found

    def routed(self, message: Message) -> tuple[list[int], list[int]]:
        """Returns the cells that a message leaves, and those that it is for."""
        sent, arrives = self._cells_in(message.sent_from), self._cells_in(message.into)
        changed = [one.cell for one in self.changes[message.step] if one.rank == message.dest]
        into = arrives or [cell for cell in sent if cell in changed] or sent or changed
        return sent or into, into

    def _cells_in(self, region: tuple[int, int] | None) -> list[int]:
        cells = enumerate(self.held.cells)
        return [i for i, (a, b) in cells if region and a < region[1] and b > region[0]]

    @cached_property
    def fates(self) -> dict[int, str | None]:
        """Returns, by number, "adds", "copies" or None where it is neither or not known."""
        found: dict[int, str | None] = {}
        after: Cells = {}
        for messages, changes in zip(self.messages, self.changes, strict=True):
            before = after
            after = {**before, **{(one.rank, one.cell): one.counts for one in changes}}
            found |= {one.number: self._fate(one, before, after) for one in messages}
        return found

    def _fate(self, message: Message, before: Cells, after: Cells) -> str | None:
        leaves, into = self.routed(message)
        fates = set()
        for left, cell in zip(leaves, into, strict=False):
            came = before.get((message.source, left))
            own, now = (held.get((message.dest, cell)) for held in (before, after))
            fate = None
            if own and came and now and now != own:
                summed = tuple(a + b for a, b in zip(own, came, strict=True))
                fate = {summed: "adds", came: "copies"}.get(now)
            fates.add(fate)
        return fates.pop() if len(leaves) == len(into) and len(fates) == 1 else None

    @cached_property
    def phases(self) -> list[dict[str, Any]]:
        """Returns {name, kind, first, last} of each. Some have no name."""
        found: list[dict[str, Any]] = []
        for step, messages in enumerate(self.messages if self.shape else []):
            kinds = {self.fates[one.number] for one in messages}
            if len(kinds) != 1 or None in kinds:
                continue
            (kind,) = kinds
            same = {"name": self._name(step, kind), "kind": kind}
            if found and {**found[-1], **same, "last": step - 1} == found[-1]:
                found[-1]["last"] = step
            else:
                found.append({**same, "first": step, "last": step})
        return found

    def _name(self, step: int, kind: str | None) -> str | None:
        """Returns the collective that such a step is a part of."""
        messages, shape = self.messages[step], self.shape or {}
        routes = [self.routed(one) for one in messages]
        whole = all(len(into) == len(self.held.cells) for _, into in routes)
        if "root" in shape and whole:
            return "reduce" if kind == "adds" else "broadcast"
        if "root" in shape and kind == "copies":
            return "gather" if all(one.dest == shape["root"] for one in messages) else "scatter"
        size = shape.get("size", 0)
        inside = sum(one.source // size == one.dest // size for one in messages) if size else 0
        where = " in groups" if inside else " between groups"
        where = where if size and inside in (0, len(messages)) else ""
        everyone = {one.source for one in messages} == set(range(self.record.ranks))
        known = kind == "adds" or all(
            one.sent_from and one.into and one.sent_from[0] == one.into[0] for one in messages
        )
        if everyone and not whole and known:
            return ("reduce-scatter" if kind == "adds" else "all-gather") + where
        return ("reduce" if kind == "adds" else "broadcast") + where if where and whole else None

    def says(self, step: int) -> str:
        """Returns a sentence about a step."""
        if not self.record.steps:
            return "No message was sent: there is no step to play."
        if not step:
            return "Before the first step: each rank holds its own data."
        messages, ranks = self.messages[step], self.record.ranks
        if not messages:
            return "No message moves."
        many = f"{len(messages):,}{GAP}messages, " if len(messages) > 1 else ""
        load = bytes_text(sum(one.nbytes for one in messages)).replace(" ", GAP)
        busy = {rank for one in messages for rank in (one.source, one.dest)}
        places = enumerate(self.where[step - 1])
        waiting = [rank for rank, place in places if place != -1 and rank not in busy]
        sends = pattern([(one.source, one.dest) for one in messages], ranks, self.shape or {})
        phase = next((one for one in self.phases if one["first"] <= step <= one["last"]), None)
        if phase and phase["name"]:
            nth, of = step - phase["first"] + 1, phase["last"] - phase["first"] + 1
            title = phase["name"][0].upper() + phase["name"][1:]
            sends = f"{title} {nth} of {of}, {phase['kind']}: {sends[0].lower()}{sends[1:]}"
        waits = f" {_subject(waiting, ranks, 'wait')}." if waiting else ""
        return f"{sends} ({many}{load}).{waits}"


def pattern(pairs: Sequence[tuple[int, int]], ranks: int, shape: Shape) -> str:
    """Returns who sends to whom, in the shortest true words."""
    sources = sorted({source for source, _ in pairs})
    dests = sorted({dest for _, dest in pairs})
    sends = _subject(sources, ranks, "send")
    if len(dests) == 1:
        return f"{sends} to rank {dests[0]}"
    if len(sources) == 1:
        return f"{sends} to ranks {ranks_text(dests)}"
    apart, steps = {abs(a - b) for a, b in pairs}, {b - a for a, b in pairs}
    if len(apart) == 1 and all((b, a) in pairs for a, b in pairs) and len({*pairs}) == len(sources):
        return f"{_subject(sources, ranks, 'exchange')} with the rank {apart.pop()} away"
    if direction := shape.get("direction"):
        return f"{sends} to the {'next' if direction > 0 else 'previous'} rank on the ring"
    if size := shape.get("size"):
        onward = {(b - a) % size for a, b in pairs}
        if onward == {1} and all(a // size == b // size for a, b in pairs):
            return f"{sends} to the next rank of its group"
    shifts = {(b - a) % ranks for a, b in pairs}
    if len(steps) == 1 or len(shifts) == 1:
        by = steps.pop() if len(steps) == 1 else shifts.pop()
        turned = by - ranks if len(steps) > 1 and by > ranks / 2 else by
        round_ = ", counted round" if len(steps) > 1 else ""
        return f"{sends} to the rank {abs(turned)} {'higher' if turned > 0 else 'lower'}{round_}"
    shown = ", ".join(f"{a} → {b}" for a, b in pairs[:4])
    return f"{shown} and {len(pairs) - 4} more" if len(pairs) > 4 else shown


def ranks_text(ranks: Sequence[int]) -> str:
    """Returns "3–5, 9" for [3, 4, 5, 9]."""
    runs: list[list[int]] = []
    for one in ranks:
        if runs and runs[-1][-1] == one - 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    texts = (f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
    return ", ".join(texts)


def _subject(ranks: Sequence[int], total: int, verb: str) -> str:
    if len(ranks) == total:
        return f"Every rank {verb}s"
    return f"Rank {ranks[0]} {verb}s" if len(ranks) == 1 else f"Ranks {ranks_text(ranks)} {verb}"
