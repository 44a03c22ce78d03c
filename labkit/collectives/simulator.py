"""N ranks in one process: each on a stack of its own, in turn, and every message written down.

A rank runs until it has to wait; then the next that can go on does, in a fixed order. Nothing
depends on time or chance, so that the same program always leaves the same trace.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, repeat, zip_longest
from typing import Any, NoReturn

import greenlet
import numpy as np

from labkit.collectives import faults, stuck
from labkit.collectives.changes import Changes
from labkit.collectives.communicator import Communicator, Request
from labkit.collectives.lines import Lines
from labkit.collectives.memory_regions import address, region
from labkit.collectives.patience import OutOfTime, limit
from labkit.collectives.posts import Entered, Mailboxes, Post
from labkit.collectives.statuses import tell, tell_nobody
from labkit.collectives.trace import Call, Message
from labkit.kinds import LabError

__all__ = ["Simulator"]

CALLS = 2_000_000
IDLE_TESTS = 10_000  # in a row, while no rank does anything else: nothing will come of the next


REFUSALS = 1_000  # calls after the end that a program may make in its clean-up
CLEAN_UP = 5.0  # seconds that it may take
# Stacks of programs that no exception ends: nobody may find out that nobody needs them.
_ASIDE: list[Any] = []


class Simulator:
    """The ranks of one run, what they wait for, and what they have done."""

    def __init__(
        self, program: Callable[..., Any], buffers: list[np.ndarray], *, eager: int, deadline: float
    ) -> None:
        self.ranks = len(buffers)
        self.buffers = buffers
        self.calls: list[Entered] = []
        self.clocks = [0] * self.ranks
        self.lines = Lines(program)
        self.mail = Mailboxes(buffers, self.lines)
        self.changes = Changes(buffers)
        self.returned: list[Any] = [None] * self.ranks
        self.waiting: list[tuple[Entered, list[Post]] | None] = [None] * self.ranks
        self.ended = [False] * self.ranks
        self._starts = [address(buffer) for buffer in buffers]
        self._program = program
        self._eager = eager
        self._deadline = deadline
        self._until = 0.0
        self._fault: LabError | None = None
        self._over = False
        self._ready: deque[int] = deque(range(self.ranks))
        self._for_one = [False] * self.ranks  # it waits for one of its posts, and not for all
        self._at_barrier: list[Entered] = []
        self._barriers = 0
        self._entered = 0
        self._refused = 0
        self._idle_tests = 0
        self._hub: Any = None
        self._stacks: list[Any] = []

    def run(self, options: dict[str, Any]) -> None:
        """Run the program on every rank to its end; what went wrong is raised."""
        self._hub = greenlet.getcurrent()
        self._until = time.monotonic() + self._deadline
        stacks = self._stacks = [greenlet.greenlet(self._rank) for _ in range(self.ranks)]
        started = [False] * self.ranks
        try:
            with limit(self._deadline):
                while self._ready and self._fault is None:
                    rank = self._ready.popleft()
                    arguments = () if started[rank] else (rank, options)
                    started[rank] = True
                    stacks[rank].switch(*arguments)
            self._judge()
        except OutOfTime as late:
            raise faults.out_of_time(self._deadline, late, self.lines) from None
        finally:
            self._over = True
            self._clean_up([stack for stack in stacks if stack])
            self._stacks = []

    def _clean_up(self, stacks: list[Any]) -> None:
        """Let the `finally` blocks of ranks that still wait run, and be rid of their stacks."""
        if stacks:
            with suppress(OutOfTime), limit(CLEAN_UP):
                for stack in stacks:
                    stack.throw()

    def _rank(self, rank: int, options: dict[str, Any]) -> None:
        try:
            comm = Communicator(self, rank)
            self.returned[rank] = self._program(comm, self.buffers[rank], **options)
            self.changes.look(rank, self.clocks[rank])
        except LabError as fault:
            self._fault = self._fault or fault
        except (Exception, SystemExit) as fault:  # noqa: BLE001 (it is told with its rank)
            if self._fault is None:
                self._fault = faults.rank_raised(rank, fault, self.lines)
                self._fault.__cause__ = fault
        self.ended[rank] = True
        self._idle_tests = 0

    def _judge(self) -> None:
        fault = self._fault
        if fault is None and not all(self.ended):
            fault = stuck.deadlock(self)
        if fault is None:
            fault = faults.left_over(self.mail, self.calls, self.lines)
        if fault is not None:
            raise fault

    # What the calls are made of.

    def enter(self, rank: int, name: str) -> Entered:
        """A rank enters a call."""
        if self._over or self._fault is not None:
            self._refuse(name)
        if greenlet.getcurrent() is not self._stacks[rank]:
            self.stop(faults.not_from_here(rank, name))
        self._entered += 1
        if self._entered > CALLS:
            self.stop(faults.too_many_calls(CALLS, rank, name, self.lines))
        if self._entered % 64 == 0 and time.monotonic() > self._until:
            self.stop(faults.out_of_time(self._deadline, None, self.lines))
        self.changes.look(rank, self.clocks[rank])
        return Entered(rank, name, self.lines.here(), self.lines)

    def _refuse(self, name: str) -> NoReturn:
        """The run has ended, and a program that swallowed the reason does not go on."""
        own = self._hub is not None and greenlet.getcurrent().parent is self._hub
        if not own:
            raise faults.run_is_over(name)
        self._refused += 1
        while self._refused > REFUSALS:  # it swallows everything, again and again
            _ASIDE.append(greenlet.getcurrent())
            self._hub.switch()
        raise greenlet.GreenletExit

    def send(self, call: Entered, flat: np.ndarray, dest: int | None, tag: int) -> Post | None:
        """Post a send: for the first receive there that fits, or a later one."""
        if dest is None:
            return None
        eager = 0 < self._eager >= flat.nbytes
        clock = self.clocks[call.rank]
        where = region(flat, self.buffers[call.rank], self._starts[call.rank])
        post = Post(call, True, dest, tag, flat, flat.copy(), clock, where, eager)
        call.posts.append(post)
        self._met(self.mail.offer, post)
        return post

    def receive(self, call: Entered, flat: np.ndarray, source: int | None, tag: int) -> Post | None:
        """Post a receive: of the first message that was offered and fits, or a later one."""
        if source is None:
            return None
        where = region(flat, self.buffers[call.rank], self._starts[call.rank])
        post = Post(call, False, source, tag, flat, None, self.clocks[call.rank], where)
        call.posts.append(post)
        self._met(self.mail.want, post)
        return post

    def later(self, call: Entered, post: Post | None) -> Request:
        """Come back from a non-blocking call with a request for its post."""
        if post is not None:
            post.late = True
            if not post.sends and post.flat is not None:
                post.held = post.flat.copy()
        self._leave(call)
        return Request(post, self, call.rank)

    def finish(
        self, call: Entered, posts: Sequence[Post | None], statuses: Sequence[Any] = ()
    ) -> None:
        """Wait for the posts, put received data where they belong, come back from the call."""
        there = [post for post in posts if post is not None]
        call.awaits.extend(post for post in there if not post.eager)
        self._block(call, there, for_one=False)
        for post, status in zip_longest(posts, statuses):
            if post is not None:
                self._complete(post, status)
            elif status is not None:
                tell_nobody(status)
        self._leave(call)

    def wait(
        self, rank: int, name: str, requests: Sequence[Request], statuses: Sequence[Any] | None
    ) -> None:
        """Wait for all of the requests."""
        call = self.enter(rank, name)
        told = zip(requests, chain(statuses or (), repeat(None)), strict=False)
        # Of a request that was waited for before there is nothing to tell.
        known = [None if request.taken else status for request, status in told]
        self.finish(call, [request.take() for request in requests], known)

    def wait_for_one(self, rank: int, requests: Sequence[Request], status: Any) -> Request:
        """Wait for one of the requests, and take the first of those that are complete."""
        call = self.enter(rank, "Waitany")
        self._block(call, [r.post for r in requests if r.post is not None], for_one=True)
        done = next(r for r in requests if r.post is not None and r.post.is_done)
        self.finish(call, [done.take()], [status])
        return done

    def test(self, rank: int, request: Request, status: Any) -> bool:
        """Whether the request is complete; if not, every other rank has its turn first."""
        post = request.post
        if post is None:
            if status is not None and not request.taken:
                tell_nobody(status)
            return True
        idle = self._idle_tests
        call = self.enter(rank, "Test")
        if not post.is_done:
            self._idle_tests = idle + 1
            self.waiting[rank] = (call, [post])
            if self._idle_tests > IDLE_TESTS:
                self.stop(stuck.deadlock(self))
            self._ready.append(rank)
            self._away()
            self.waiting[rank] = None
        if not post.is_done:
            return False
        self.finish(call, [request.take()], [status])
        return True

    def barrier(self, rank: int) -> None:
        """Wait until every rank is at the barrier."""
        call = self.enter(rank, "Barrier")
        call.barrier = self._barriers
        self._at_barrier.append(call)
        if len(self._at_barrier) < self.ranks:
            self.waiting[rank] = (call, [])
            self._away()
        else:
            self.clocks = [max(self.clocks)] * self.ranks
            self._barriers += 1
            for other in self._at_barrier[:-1]:
                self._go_on(other.rank)
            self._at_barrier = []
        self._leave(call)

    # How ranks wait and go on.

    def _met(self, look: Callable[[Post], Post | None], post: Post) -> None:
        self._idle_tests = 0
        try:
            other = look(post)
        except LabError as fault:
            self.stop(fault)
        if other is not None:
            self._wake(other.rank)
            if post.rank != other.rank:
                self._wake(post.rank)

    def _wake(self, rank: int) -> None:
        waiting = self.waiting[rank]
        if waiting is None or not waiting[1] or waiting[0].name == "Test":
            return
        enough = any if self._for_one[rank] else all
        if enough(post.is_done for post in waiting[1]):
            self._go_on(rank)

    def _go_on(self, rank: int) -> None:
        self.waiting[rank] = None
        self._ready.append(rank)

    def _block(self, call: Entered, posts: list[Post], *, for_one: bool) -> None:
        enough = any if for_one else all
        if posts and not enough(post.is_done for post in posts):
            self.waiting[call.rank] = (call, posts)
            self._for_one[call.rank] = for_one
            self._away()

    def _away(self) -> None:
        """Let the other ranks go on."""
        self._hub.switch()
        if self._fault is not None:
            raise greenlet.GreenletExit

    def _complete(self, post: Post, status: Any) -> None:
        if not post.keeps_its_memory():
            self.stop(faults.memory_changed(post, self.lines))
        message = post.message
        if not post.sends:
            assert message is not None
            assert post.flat is not None
            # Only now: a program that looks before it has waited finds what was there before.
            post.flat[: message.count] = message.data
            message.data = None
            if status is not None:
                tell(status, message.sender.rank, message.tag, message.nbytes)
        post.let_go()

    def _leave(self, call: Entered) -> None:
        """The call comes back; its rank's clock is at the last step that it awaited."""
        clock = self.clocks[call.rank]
        for post in call.awaits:
            if post.message is not None and post.message.step > clock:
                clock = post.message.step
        self.clocks[call.rank] = call.step = clock
        call.number = len(self.calls)
        self.calls.append(call)

    def stop(self, fault: LabError) -> NoReturn:
        """End the run for this fault; a program that catches it changes nothing."""
        self._fault = self._fault or fault
        raise fault

    # What is left of the run.

    def recorded(self) -> tuple[tuple[Call, ...], tuple[Message, ...]]:
        """The calls and the messages, as plain data."""
        calls = tuple(call.recorded() for call in self.calls)
        return calls, tuple(matched.recorded() for matched in self.mail.matched)
