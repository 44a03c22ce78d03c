"""What has been heard of the ranks of a run: who is ready, wrote, returned, failed, and where.

>>> heard = Heard(ranks=2, show=False)
>>> heard.take(Ready(0, pid=71, host="here"))
>>> heard.take(Ready(1, pid=72, host="here"))
>>> heard.take(Wrote(1, "out", b"step 1 is done"))
>>> heard.line_with("step 1", rank=None).rank
1
>>> heard.silent()
[0, 1]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from labkit.cluster.engine import Ended, Event, Raised, Ready, Returned, Said, Stack
from labkit.cluster.engine import Output as Wrote
from labkit.cluster.failures import RankError, What, died, left, listed, raised
from labkit.cluster.output import Line, Output
from labkit.cluster.places_in_code import place_in_stack
from labkit.cluster.rank import result_of

__all__ = ["Heard"]


class Heard:
    """What the events of a run, taken one by one, amount to.

    `learn` is told which modules the ranks had to load.
    """

    def __init__(
        self,
        ranks: int,
        show: bool,
        learn: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> None:
        self.ranks, self._learn = ranks, learn
        self.output = Output(ranks, show)
        self.began = time.monotonic()
        """When all ranks were ready; until then, when they were started."""
        self.ready: set[int] = set()
        self.pids: dict[int, int] = {}
        self.ended: set[int] = set()
        self.results: dict[int, Any] = {}
        self.errors: dict[int, RankError] = {}
        """In the order in which they were heard."""
        self._stacks: dict[int, str] = {}
        self._paused: set[int] = set()
        self._latest_stack = 0.0  # when a piece of one came

    @property
    def seconds(self) -> float:
        """Since all ranks were ready."""
        return time.monotonic() - self.began

    @property
    def all_ready(self) -> bool:
        """Whether all ranks are ready, or have been."""
        return len(self.ready) == self.ranks

    @property
    def done(self) -> set[int]:
        """Ranks that have returned or failed."""
        return {*self.results, *self.errors}

    def silent(self) -> list[int]:
        """Ranks that have neither returned nor failed."""
        done = self.done
        return [rank for rank in range(self.ranks) if rank not in done]

    def take(self, event: Event) -> None:
        """One more event."""
        match event:
            case Wrote():
                self.output.take(event.rank, event.stream, event.data, self.seconds)
            case Stack():
                self._latest_stack = time.monotonic()
                self._stacks[event.rank] = self._stacks.get(event.rank, "") + event.text
                if event.stopped:
                    self._paused.add(event.rank)
            case Ready():
                self.ready.add(event.rank)
                self.pids[event.rank] = event.pid
                if self.all_ready:
                    self.began = time.monotonic()
            case Returned():
                self._returned(event)
            case Raised():
                self.errors[event.rank] = raised(event.rank, event.payload, self.seconds)
            case Ended():
                self._has_ended(event)
            case Said():
                print(event.text, flush=True)

    def line_with(self, text: str, rank: int | None) -> Line | None:
        """The first line of a rank, or of any, that has this text in it; it need not have ended."""
        for line in self.output.lines():
            if text in line.text and rank in (None, line.rank):
                return line
        for number, stream, begun in self.output.unfinished():
            if text in begun and rank in (None, number):
                return Line(self.seconds, number, stream, begun)
        return None

    def forget_places(self, ranks: Collection[int]) -> None:
        """They are asked anew where they are."""
        for rank in ranks:
            self._stacks.pop(rank, None)
        self._paused -= set(ranks)

    def have_said_where(self, ranks: Collection[int], quiet: float) -> bool:
        """Whether all have, and no word has come for `quiet` seconds: then it was all."""
        said = all(rank in self._stacks or rank in self.ended for rank in ranks)
        return said and time.monotonic() >= self._latest_stack + quiet

    def leave(self, rank: int, what: What) -> None:
        """It was still at work when the run ended: its error says where."""
        stack = self._stacks.get(rank, "")
        self.errors[rank] = left(rank, what, self.seconds, self._where(rank, stack), stack)

    def who_is_not_ready(self) -> str:
        """Those ranks, as the beginning of a sentence."""
        missing = [rank for rank in range(self.ranks) if rank not in self.ready]
        return f"{listed(missing)} {'was' if len(missing) == 1 else 'were'} not ready"

    def _returned(self, event: Returned) -> None:
        try:
            self.results[event.rank], loaded = result_of(event.payload)
        except Exception as fault:  # noqa: BLE001 (the user's own class may raise anything)
            text = f"What rank {event.rank} returned cannot be read here: {fault}"
            self.errors[event.rank] = RankError(event.rank, "raised", text, seconds=self.seconds)
        else:
            self._learn(loaded)

    def _has_ended(self, event: Ended) -> None:
        rank = event.rank
        self.ended.add(rank)
        self.output.end(rank, self.seconds)
        if rank not in self.done:
            stack = self._stacks.get(rank, "")
            self.errors[rank] = died(
                rank, event.code, self.seconds, stack, event.reason, begun=self.all_ready
            )

    def _where(self, rank: int, stack: str) -> str:
        """What a rank was doing that has neither returned nor failed."""
        if rank not in self.ready:
            return "its start"
        if rank in self._paused:
            return "no line at all: it is stopped (SIGSTOP)"
        if place := place_in_stack(stack):
            return str(place)
        if stack:
            return "a library"
        line = self.output.last(rank)
        return (
            f"an unknown place, after it wrote {line.text[:60]!r}" if line else "an unknown place"
        )
