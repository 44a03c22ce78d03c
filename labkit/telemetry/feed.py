"""The kernel's side of the sampler: starts it, hands on what it says, ends it.

>>> feed = Feed(every=0.1, sources=("host",))        # doctest: +SKIP
>>> feed.listen(print)                               # doctest: +SKIP
>>> feed.start()                                     # doctest: +SKIP
>>> feed.stop()                                      # doctest: +SKIP
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from labkit.kinds import LabError
from labkit.telemetry.child import Child, Inside
from labkit.telemetry.lines import state_line
from labkit.telemetry.listeners import Listener, Listeners, Reader
from labkit.telemetry.metrics import Source, State, Why

__all__ = ["Cost", "Feed"]

RESTARTS = 3
PAUSES = (0.1, 1.0, 3.0)  # seconds before the sampler is started again
ROUND = 3.0  # seconds between two looks at how the sampler does, while it says nothing
LATE = 8.0  # seconds without a line (it speaks every 6 s at least) until that is told
STUCK = 15.0  # and until the sampler is started again
# What is said twice a second, and nothing that a driver's library may have printed in between.
_ROWS = re.compile(rb"(?:\[\d+,[\d.]+(?:,\[[-+.,\deEnul]*\])+\]\n)+")
Request = Literal["mark", "tell", "live", "each"]  # what the sampler is asked, by the same names
FIRST = 60.0  # the first line may take this long: Python starts slowly on a busy network disk


@dataclass(frozen=True)
class Cost:
    """What watching has cost: seconds of CPU time, and the seconds that it has lasted."""

    sampler: float
    reader: float
    seconds: float


class Feed:
    """Samples of this machine, from now on, to whoever listens.

    `sources` are names ("gpus", "host"), which a process of its own looks at, or objects, which
    threads of this process look at. Lines arrive as `json.loads` gives them, several at once, in
    the order of a recording: the header, the sources, then rows and whatever happens. Who begins to
    listen late gets the header and the sources first.

    A feed is for one time: it cannot be started again.
    """

    def __init__(
        self,
        every: float = 0.1,
        sources: Sequence[str | Source] = ("gpus", "host"),
        pid: int | None = None,
        where: str = "",
    ) -> None:
        if not (isinstance(every, (int, float)) and math.isfinite(every) and 0 < every <= 3600):
            raise LabError(f"every={every!r} is no number of seconds. 0.1 suits a lesson.")
        self.clock = time.monotonic()  # when time was 0
        self._run = _Run(float(every), tuple(sources), pid or os.getpid(), where, self.clock)
        self._end: weakref.finalize[[float], Feed] | None = None

    def start(self) -> None:
        """Begin; comes back at once."""
        if self._end is not None:
            raise LabError("This feed was started before. Make a new one.")
        self._run.start()
        # Ends the process when nobody holds the feed any more, and when Python ends.
        self._end = weakref.finalize(self, self._run.stop, 1.0)

    def stop(self, deadline: float = 2.0) -> None:
        """End, after handing on what was said until now. May be called again and from anywhere."""
        if self._end is not None:
            self._end.detach()
        self._run.stop(deadline)

    def mark(self) -> None:
        """Look now, or within 5 ms where that was just done. Comes back at once; what was seen is
        handed on with the next looks.
        """
        self._run.ask("mark")

    def tell(self) -> None:
        """The same, but hand on at once what was seen until then. Comes back at once, too."""
        self._run.ask("tell")

    def live(self) -> None:
        """Somebody watches: hand looks on while they are new, twice a second. Otherwise they come
        every two seconds.
        """
        self._run.ask("live")

    def each(self) -> None:
        """Hand each look on by itself, at once: what was handed on cannot be lost with us."""
        self._run.ask("each")

    def listen(self, listener: Listener, rows: Reader | None = None) -> Callable[[], None]:
        """Call `listener(lines)` from the feed's own thread; gives a function that ends that.

        With `rows`, what is nothing but rows is not taken apart: `rows(text)` is called with JSON
        texts, a comma between two. A listener that raises is not called again; the others are told.
        """
        return self._run.listeners.add(listener, rows)

    @property
    def alive(self) -> bool:
        """Whether samples may still come."""
        return self._run.alive

    @property
    def pid(self) -> int | None:
        """The sampler's process."""
        return self._run.pid

    @property
    def cost(self) -> Cost:
        """What watching has cost up to a few seconds ago."""
        return self._run.cost


class _Run:
    """What the feed's thread works on. Knows no Feed, so that a forgotten one can end."""

    def __init__(
        self, every: float, sources: tuple[str | Source, ...], pid: int, where: str, clock: float
    ) -> None:
        names = [source for source in sources if isinstance(source, str)]
        self._objects = [source for source in sources if not isinstance(source, str)]
        if not sources or (names and self._objects):
            raise LabError(
                f"sources={sources!r}: give names, such as ('gpus', 'host'), or Source objects."
            )
        if unknown := set(names) - {"gpus", "host"}:
            raise LabError(f"There is no source {unknown.pop()!r}. There are 'gpus' and 'host'.")
        self._names = names or [source.name for source in self._objects]
        self._every, self._of, self._where, self._clock = every, pid, where, clock
        self._owner = os.getpid()
        self._end: Child | Inside | None = None
        self._thread = threading.Thread(target=self._work, name="labkit feed", daemon=True)
        self._stopping = threading.Event()
        # Reentrant: a forgotten feed is ended by the collector, in the middle of anything.
        self._lock = threading.RLock()
        self.listeners = Listeners(lambda says: self._state(time.monotonic(), "", "note", says))
        self._told_late = False
        self._restarts = 0
        self._modes: list[Request] = []  # how looks are to be handed on
        self._heard = self._patience = 0.0
        self._stopped_at: float | None = None
        self._earlier = self._sampler_cost = self._reader_cost = 0.0

    # Asked by the feed, from any thread.

    def start(self) -> None:
        self._begin()
        _running.add(self)
        self._thread.start()

    def stop(self, deadline: float) -> None:
        if os.getpid() != self._owner:
            return  # a fork of the kernel has no part in it
        with self._lock:
            first = not self._stopping.is_set()
            self._stopping.set()
            end = self._end
        if end is None:
            return
        if first:
            self._stopped_at = time.monotonic()
            end.end()
            if self._patience:  # nothing was said yet, so there is nothing to wait for
                end.kill()
        if self._thread is threading.current_thread():
            return  # a listener stops the feed: the thread ends when the listener comes back
        until = time.monotonic() + max(0.1, deadline)
        self._thread.join(0.7 * max(0.1, deadline))
        if self._thread.is_alive():
            end.kill()
            self._thread.join(max(0.0, until - time.monotonic()))

    def ask(self, what: Request) -> None:
        if what in ("live", "each"):
            with self._lock:
                self._modes = [*dict.fromkeys([*self._modes, what])]
                self._pass_on(what)
        else:
            self._pass_on(what)

    def _pass_on(self, what: Request) -> None:
        end = self._end
        if end is not None:
            asked: Callable[[], object] = getattr(end, what)
            asked()

    @property
    def alive(self) -> bool:
        return self._owner == os.getpid() and self._thread.is_alive()

    @property
    def pid(self) -> int | None:
        return self._end.pid if self._end and self.alive else None

    @property
    def cost(self) -> Cost:
        until = self._stopped_at or time.monotonic()
        return Cost(self._earlier + self._sampler_cost, self._reader_cost, until - self._clock)

    def forget(self) -> None:
        """In a fork of the kernel."""
        self._lock = threading.RLock()
        if self._end is not None:
            self._end.forget()
            self._end = None

    # Done in the feed's thread.

    def _work(self) -> None:
        try:
            while True:
                end = self._end
                assert end is not None
                # Asked again, because time may have passed since: while another thread held the
                # interpreter's lock, and the samples came.
                said = end.receive(ROUND) or end.receive(0.0)
                if said:
                    self._hear(said)
                elif said is None:
                    how = end.finish(1.0)
                    if self._stopping.is_set() or not self._again(how):
                        return
                else:
                    self._wait_for(end)
        finally:
            if self._end is not None:
                self._end.finish(0.2)
            self._reader_cost = time.thread_time()

    def _begin(self, continued: bool = False) -> None:
        end: Child | Inside
        if self._objects:
            end = Inside(self._objects, self._every, self._clock, self._where)
        else:
            asked = {
                "--every": repr(self._every),
                "--pid": str(self._of),
                "--sources": ",".join(self._names),
                "--clock": repr(self._clock),
                "--where": self._where,
            }
            arguments = [f"{name}={value}" for name, value in asked.items()]
            end = Child([*arguments, "--continued"] if continued else arguments)
        self._heard, self._patience = time.monotonic(), FIRST
        with self._lock:
            self._end = end
            for mode in self._modes:
                self._pass_on(mode)
            if self._stopping.is_set():  # stop() came while it was being started
                end.end()

    def _again(self, how: str) -> bool:
        """Start the sampler again after it ended by itself, three times at most."""
        now = time.monotonic()
        self._earlier, self._sampler_cost = self._earlier + self._sampler_cost, 0.0
        if self._restarts == RESTARTS:
            says = (
                f"The sampler ended by itself {RESTARTS + 1} times ({how}), so nothing is watched "
                "any more. Start a new panel."
            )
            self.listeners.tell([self._state(now, name, "silent", says) for name in self._names])
            return False
        self._stopping.wait(PAUSES[self._restarts])
        self._restarts += 1
        says = f"The sampler ended by itself ({how}) and was started again."
        try:
            self._begin(continued=self.listeners.know_header)
        except LabError as fault:
            self.listeners.tell(
                [self._state(now, name, "silent", str(fault)) for name in self._names]
            )
            return False
        self.listeners.tell([self._state(now, "", "note", says)])
        return True

    def _wait_for(self, end: Child | Inside) -> None:
        """Nothing was said for a while: tell so, and after a longer while do not wait any more."""
        now = time.monotonic()
        quiet = now - self._heard
        if self._stopped_at is not None and now - self._stopped_at > LATE:
            end.kill()
        if quiet > max(LATE, self._patience - STUCK) and not self._told_late:
            self._told_late = True
            says = f"The sampler has said nothing for {quiet:.0f} s."
            self.listeners.tell([self._state(now, name, "silent", says) for name in self._names])
        if quiet > max(STUCK, self._patience):
            self._heard = now
            end.kill()

    def _hear(self, said: bytes) -> None:
        now = self._heard = time.monotonic()
        self._patience = 0.0
        if not self._told_late and _ROWS.fullmatch(said):
            self.listeners.tell_rows(said[:-1].replace(b"\n", b",").decode("ascii"))
            self._reader_cost = time.thread_time()
            return
        lines = []
        if self._told_late:
            self._told_late = False
            says = "The sampler speaks again."
            lines = [self._state(now, name, "fine", says) for name in self._names]
        lines += _parsed(said)
        for line in lines:
            if type(line) is dict and "cost" in line:
                self._sampler_cost = line["cost"]
                line["cost"] = round(self._earlier + self._sampler_cost, 4)
        self.listeners.tell(lines)
        self._reader_cost = time.thread_time()

    def _state(self, now: float, device: str, why: Why, says: str) -> Any:
        return json.loads(state_line(State(now, device, "", why, says), self._clock))


def _parsed(said: bytes) -> list[Any]:
    r"""Lines at once; one that a library of the driver's has printed in between is left out.

    >>> _parsed(b'[0,1.5]\n{"end":2}\n'), _parsed(b'[0,1.5]\nWARNING\n')
    ([[0, 1.5], {'end': 2}], [[0, 1.5]])
    """
    try:
        found: list[Any] = json.loads(b"[" + said.rstrip(b"\n").replace(b"\n", b",") + b"]")
    except ValueError:
        found = []
        for line in said.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return [line for line in found if isinstance(line, (list, dict))]


_running: weakref.WeakSet[_Run] = weakref.WeakSet()


def _forget_all() -> None:
    for run in list(_running):
        run.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
