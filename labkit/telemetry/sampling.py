"""Looks at every source on a schedule that does not drift, whatever the sources do.

>>> lines = []
>>> sampling = Sampling([source], every=0.1, emit=lines.extend)     # doctest: +SKIP
>>> sampling.start()                                                # doctest: +SKIP
>>> sampling.stop()                                                 # doctest: +SKIP

One thread looks at all sources in turn, because to be woken costs more than to look. A source that
is slow, or hangs, keeps that thread to itself: the others move to another one.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from labkit.telemetry.lines import Header, cost_line, end_line, header_line
from labkit.telemetry.looks import Watch
from labkit.telemetry.metrics import Device, Source
from labkit.telemetry.post import SLOWS, Post

__all__ = ["Sampling"]

STUCK = 0.5  # seconds after which others do not wait any more for a look to come back
FIRST = 1.0  # seconds that the header waits for the names of the devices
COSTED = 5.0  # seconds between two lines about the sampler's own cost
NAP = 60.0  # seconds; the longest sleep


class Sampling:
    """Watches several sources at once and hands over finished lines, in lists, from any thread.

    Sources are numbered in the order in which they are given. `cpu` says what the sampling has
    cost so far; without it, what its own threads have used. `header` is left out where a recording
    goes on. `together`: seconds for which looks wait to be worked out and handed over with the next
    ones, which costs less. A mark is looked at without delay, and handed over with the others.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        every: float,
        emit: Callable[[list[str]], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        began: float | None = None,
        where: str = "",
        header: bool = True,
        cpu: Callable[[], float] | None = None,
        together: float = 0.0,
    ) -> None:
        self.began = clock() if began is None else began
        self.together = together
        self.every, self._emit, self.clock = every, emit, clock
        self._where, self._header, self._cpu = where, header, cpu
        self._posts = [
            Post(number, Watch(source, every, self.began), self.began)
            for number, source in enumerate(sources)
        ]
        self._workers = [_Worker(self, self._posts)]
        self._lock = threading.Lock()
        self._held: list[str] | None = []  # lines that wait for the header; None once it is out
        self._rows: list[str] = []  # those that wait for others
        self._ended = False
        self._first = self._costed = self._told = clock()

    @property
    def cpu_seconds(self) -> float:
        """What the sampling has cost so far."""
        return self._cpu() if self._cpu else sum(worker.cpu_seconds for worker in self._workers)

    def start(self) -> None:
        """Begin; comes back at once."""
        for worker in self._workers:
            worker.start()

    def look_now(self, *, hand_over: bool = False) -> None:
        """Look at once, at all sources, without disturbing the schedule.

        `hand_over`: and tell all that was seen until then; somebody waits for it.
        """
        for post in self._posts:
            post.ask(hand_over)
        for worker in self._workers:
            worker.wake()

    def check(self) -> None:
        """See to sources that hang, and tell of them and of the cost. To be called once a second or
        so by a thread that no source can hold up.
        """
        now = self.clock()
        for worker in list(self._workers):
            if worker.stuck(now):
                self.part(worker)
        lines = [line for post in self._posts for line in post.silence(now)]
        if now - self._costed >= COSTED:
            self._costed = now
            self.tell([cost_line(now - self.began, self.cpu_seconds)], wait=True)
        if lines or self.opening or now - self._told >= COSTED:
            self.tell(lines)

    def part(self, worker: _Worker) -> None:
        """Leave a worker with the source that it is at, and the others to a new one."""
        with self._lock:
            if self._ended or not (others := worker.hand_over()):
                return
            fresh = _Worker(self, others)
            self._workers.append(fresh)
            fresh.start()

    def stop(self, deadline: float = 0.1) -> None:
        """End at once. A source that hangs is left alone, in a thread that ends with it."""
        for worker in self._workers:
            worker.end()
        until = time.monotonic() + deadline
        for worker in self._workers:
            worker.join_until(until)
        now = self.clock()
        lines = [cost_line(now - self.began, self.cpu_seconds), end_line(now - self.began)]
        # Whoever is told may itself be stuck: then the end is not told, but it comes.
        held = self._lock.acquire(timeout=deadline)
        try:
            ended, self._ended = self._ended, True
            if held and not ended:
                self._emit([*self._opening(), *self._rows, *lines])
        finally:
            if held:
                self._lock.release()

    def tell(self, lines: list[str], *, wait: bool = False) -> None:
        """Hand lines over, in order, after the header. `wait`: with the next ones."""
        with self._lock:
            if self._ended:
                return
            if self._held is not None:
                self._held.extend(lines)
                known = all(post.tried for post in self._posts)
                if known or self.clock() - self._first >= FIRST:
                    self._emit(self._opening())
            elif wait:
                self._rows += lines
            elif told := [*self._rows, *lines]:
                self._rows, self._told = [], self.clock()
                self._emit(told)

    @property
    def opening(self) -> bool:
        """Whether the header is still to come, and the sources with it."""
        return self._held is not None

    def _opening(self) -> list[str]:
        """Header and sources, once: a source that has not opened yet is named without devices."""
        if self._held is None:
            return []
        held, self._held = self._held, None
        sources = [post.line() for post in self._posts]
        if not self._header:
            return [*sources, *held]
        devices = [device for post in self._posts for device in post.watch.devices]
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        header = Header(self._where or _names(devices), when, self.every, self.began)
        return [header_line(header), *sources, *held]


class _Worker(threading.Thread):
    """A thread, and the sources that it looks at in turn."""

    def __init__(self, sampling: Sampling, posts: Sequence[Post]) -> None:
        super().__init__(name="labkit sampling", daemon=True)
        self._sampling, self._clock = sampling, sampling.clock
        self._posts = list(posts)
        self._claiming = threading.Lock()
        self._at: Post | None = None  # the source that it is looking at
        self._told = -math.inf  # when the last of those looks began that were handed over
        self.cpu_seconds = 0.0
        # A lock in place of an event: ten times a second, it costs a third.
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self._ending = False

    def run(self) -> None:
        try:
            while not self._ending:
                begin = self._glance(self._clock())
                if begin is None:
                    begin = min((post.begin() for post in self._posts), default=math.inf)
                left = begin - self._clock()
                if left > 0:
                    self._asleep.acquire(True, min(left, NAP))
                else:
                    self._round()
            for post in self._posts:
                if post.watch.glanced:
                    self._sampling.tell(self._look(post))
        finally:
            for post in self._posts:
                post.watch.close()

    def wake(self) -> None:
        with suppress(RuntimeError):  # it is awake, and looks at the flags before it sleeps
            self._asleep.release()

    def end(self) -> None:
        self._ending = True
        self.wake()

    def join_until(self, until: float) -> None:
        if self.ident is not None and self is not threading.current_thread():
            self.join(max(0.0, until - time.monotonic()))

    def stuck(self, now: float) -> bool:
        """Whether a look does not come back, and others wait for it."""
        at = self._at
        since = at.since if at else None
        return len(self._posts) > 1 and since is not None and now - since > STUCK

    def hand_over(self) -> list[Post]:
        """Give all sources away but the one that it is looking at."""
        with self._claiming:
            others = [post for post in self._posts if post is not self._at]
            self._posts = [post for post in self._posts if post is self._at]
            return others

    def _claim(self, post: Post) -> bool:
        """Begin with a source, unless it was handed over."""
        with self._claiming:
            if post not in self._posts:
                return False
            self._at = post
            return True

    def _done(self, post: Post) -> None:
        if post.slows >= SLOWS and len(self._posts) > 1:
            self._sampling.part(self)
        self._at = None

    def _glance(self, now: float) -> float | None:
        """Glance at all that are due; when the next look begins. None: one wants more than that.

        The usual case, in few steps: what runs ten times a second finds no cache that is warm, and
        each line of it costs several times what it would in a loop.
        """
        posts, tells = self._posts, self._tells(now)
        for post in posts:
            if tells and post.due <= now and post.read_by <= now:
                return None  # then all that are due are read, and handed over together
            if post.urgent and post.begin() <= now:
                return None
        looked = False
        for post in posts:
            if (post.begin() if post.marked else post.due) <= now:
                if not self._claim(post):
                    return None
                looked = post.glance(now, self._clock)
                self._done(post)
                if not looked:
                    return None
                tells |= post.awaited
        if looked and tells:
            self._tell([], now)
        return min([post.begin() if post.marked else post.due for post in posts], default=None)

    def _tells(self, now: float) -> bool:
        """Whether what is seen now does not wait for the next look."""
        sampling = self._sampling
        return now > self._told + sampling.together or sampling.every > sampling.together

    def _tell(self, lines: list[str], now: float) -> None:
        """Hand over what was seen until now, with all that was only glanced at."""
        self._told = now
        for post in self._posts:
            post.awaited = False
            if post.watch.glanced:
                lines += self._recall(post)
        self.cpu_seconds = time.thread_time()
        if lines or self._sampling.opening:
            self._sampling.tell(lines)

    def _recall(self, post: Post) -> list[str]:
        if not self._claim(post):
            return []
        now = self._clock()
        post.recall(now)
        self._at = None
        return post.report(now, named=not self._sampling.opening)

    def _look(self, post: Post) -> list[str]:
        post.look(self._clock(), self._clock)
        # After the look, during which the header may have come to be handed over.
        return post.report(self._clock(), named=not self._sampling.opening)

    def _round(self) -> None:
        """Look at all that are due, and hand over what that gave, at once."""
        lines: list[str] = []
        now = self._clock()
        # The last comes first: the processor opens quickly, a driver may take seconds.
        for post in self._posts[::-1]:
            if not self._claim(post):
                continue
            if self._clock() >= post.begin():
                post.awaited |= post.answer()
                lines += self._look(post)
            self._done(post)
        # What became of a device is told at once.
        rows = all(line[0] == "[" for line in lines)
        awaited = any(post.awaited for post in self._posts)
        if awaited or not rows or self._sampling.opening or self._tells(now):
            self._tell(lines, now)
        else:
            self._sampling.tell(lines, wait=True)


def _names(devices: Sequence[Device]) -> str:
    """What a recording is of: the GPUs if there are any, or else the processor."""
    names = [device.name for device in devices if device.sort == "gpu"]
    names = names or [device.name for device in devices if device.part_of is None]
    counted = [
        f"{names.count(name)} × {name}" if names.count(name) > 1 else name
        for name in dict.fromkeys(names)
    ]
    return ", ".join(counted) or "a machine that did not say what it is"
