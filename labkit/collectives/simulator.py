"""N ranks in one process: each on a stack of its own, in turn, and every message written down.

A rank runs until it has to wait; then the next that can go on does, in a fixed order. Nothing
depends on time or chance, so that the same program always leaves the same record.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from typing import Any, NoReturn

import greenlet
import numpy as np

from labkit.collectives import errors
from labkit.collectives.communicator import Communicator, Request, fill_status
from labkit.collectives.messages import End, Mailboxes, OpenCall, count_steps
from labkit.collectives.programs.reduction import operation_name
from labkit.collectives.records import Array, Record, State, Values
from labkit.collectives.source import Lines, inside_tensors, mentions
from labkit.kinds import LabError
from labkit.time_limit import TimeLimit, time_limit

__all__ = ["MOST_RANKS", "simulate"]

MOST_RANKS = 256  # a ring of them makes 130,000 calls, in 10 s
CALLS = 2_000_000
IDLE_TESTS = 10_000  # in a row, while no rank does anything else: nothing will come of the next
REFUSALS = 1_000  # calls after the end that a program may make in its clean-up
CLEAN_UP = 5.0  # seconds that it may take
KEEP = 16_000_000  # bytes; a run that changes more keeps no states
GAP = 8  # runs of changed elements that are closer than this are one
# Stacks of programs that no exception ends: they must not be collected either.
_ASIDE: list[Any] = []


def simulate(
    program: Callable[..., Any],
    buffers: list[Array],
    options: dict[str, Any],
    *,
    eager: int = 0,
    deadline: float = 60.0,
) -> Record:
    """Run `program(comm, buffer, **options)` on each buffer, in place; raise what went wrong."""
    if len(buffers) > MOST_RANKS:
        raise LabError(f"At most {MOST_RANKS} ranks are simulated, got {len(buffers):,}.")
    given = tuple(Values.of(buffer) for buffer in buffers)
    run = Simulator(program, buffers, eager=eager, deadline=deadline)
    run.run(options)
    count_steps(run.calls, run.mail.matched, run.ranks)
    left = tuple(Values.of(buffer) for buffer in buffers)
    messages = tuple(matched.recorded() for matched in run.mail.matched)
    keywords = {**getattr(program, "keywords", {}), **options}  # those of a functools.partial too
    inner = getattr(program, "func", program)
    return Record(
        program=str(getattr(inner, "__name__", type(inner).__name__)),
        ranks=run.ranks,
        options={name: repr(value) for name, value in keywords.items()},
        sources=tuple(run.lines.sources),
        calls=tuple(call.recorded() for call in run.calls),
        messages=messages,
        given=given,
        left=left,
        states=run.changes.states(),
        steps=max((message.step for message in messages), default=0),
        complete=run.changes.complete,
        op=_operation(program, keywords),
        note=_note(run, program, unchanged=given == left),
        _again=partial(_again, program, options, eager, deadline),
    )


def _again(
    program: Callable[..., Any],
    options: dict[str, Any],
    eager: int,
    deadline: float,
    inputs: Sequence[Array],
) -> Record:
    buffers = [np.array(one, order="C", copy=True) for one in inputs]
    return simulate(program, buffers, options, eager=eager, deadline=deadline)


def _operation(program: Callable[..., Any], keywords: dict[str, Any]) -> str | None:
    """The name of the program's option `op`, or of its default."""
    try:
        default = inspect.signature(program).parameters["op"].default
    except (KeyError, ValueError):
        default = None
    return operation_name(keywords.get("op", default))


def _note(run: Simulator, program: Callable[..., Any], *, unchanged: bool) -> str:
    """What is odd about a run that came to its end."""
    if unchanged and any(isinstance(value, np.ndarray) for value in run.returned):
        return (
            "The program returned an array and left its buffer as it was: a program works in "
            "place, so write into the buffer (buffer[:] = result)."
        )
    if run.ranks > 1 and not run.calls and mentions(program, "COMM_WORLD"):
        return (
            "No rank has sent anything: in a simulated run MPI.COMM_WORLD is a world of one rank. "
            "Use the comm that the program is given."
        )
    return ""


class Simulator:
    """The ranks of one run, what they wait for, and what they have done."""

    def __init__(
        self, program: Callable[..., Any], buffers: list[Array], *, eager: int, deadline: float
    ) -> None:
        self.ranks = len(buffers)
        self.buffers = buffers
        self.calls: list[OpenCall] = []
        self.lines = Lines(program)
        self.mail = Mailboxes(self.ranks)
        self.changes = Changes(buffers)
        self.returned: list[Any] = [None] * self.ranks
        self._last: list[OpenCall | None] = [None] * self.ranks  # to come back, of each rank
        self.waiting: list[tuple[OpenCall, list[End]] | None] = [None] * self.ranks
        self.ended = [False] * self.ranks
        self._addresses = [_address(buffer) for buffer in buffers]
        self._program = program
        self._says: dict[str, bool] = {}
        self._eager = eager
        self._deadline = deadline
        self._until = 0.0
        self._fault: LabError | None = None
        self._over = False
        self._ready: deque[int] = deque(range(self.ranks))
        self._for_one = [False] * self.ranks  # it waits for one of its ends, and not for all
        self._at_barrier: list[OpenCall] = []
        self._barriers = 0
        self._entered = 0
        self._refused = 0
        self._idle_tests = 0
        self._poisoned: list[End] = []  # receives whose memory has been filled with NaN
        self._lent: tuple[Any, Any] | None = None  # mpi4py and its Request
        self._hub: Any = None
        self._stacks: list[Any] = []

    def run(self, options: dict[str, Any]) -> None:
        """Run the program on every rank to its end; what went wrong is raised."""
        self._hub = greenlet.getcurrent()
        self._until = time.monotonic() + self._deadline
        stacks = self._stacks = [greenlet.greenlet(self._rank) for _ in range(self.ranks)]
        started = [False] * self.ranks
        try:
            with time_limit(self._deadline):
                while self._ready and self._fault is None:
                    rank = self._ready.popleft()
                    arguments = () if started[rank] else (rank, options)
                    started[rank] = True
                    stacks[rank].switch(*arguments)
            if self._fault is None and not all(self.ended):
                self._fault = errors.deadlock(self)
            fault = self._fault or errors.left_over(self.mail, self.calls)
            if fault is not None:
                raise fault
        except TimeLimit as late:
            raise errors.out_of_time(self._deadline, late, self.lines) from None
        finally:
            self._over = True
            self._clean_up([stack for stack in stacks if stack])
            self._stacks = []
            if self._lent is not None:
                self._lent[0].Request = self._lent[1]

    def _clean_up(self, stacks: list[Any]) -> None:
        """Let the `finally` blocks of ranks that still wait run, and be rid of their stacks."""
        if stacks:
            with suppress(TimeLimit), time_limit(CLEAN_UP):
                for stack in stacks:
                    stack.throw()

    def _rank(self, rank: int, options: dict[str, Any]) -> None:
        try:
            comm = Communicator(self, rank)
            self.returned[rank] = self._program(comm, self.buffers[rank], **options)
            self.changes.observe(rank, self._last[rank])
            if not self.changes.hidden[rank]:
                self._refuse_poison(self.buffers[rank].reshape(-1))
        except LabError as fault:
            self._fault = self._fault or fault
        except (Exception, SystemExit) as fault:  # noqa: BLE001 (it is told with its rank)
            if self._fault is None:
                self._fault = errors.rank_raised(rank, fault, self.lines)
                self._fault.__cause__ = fault
        self.ended[rank] = True
        self._idle_tests = 0

    # What the calls are made of.

    def enter(self, rank: int, name: str) -> OpenCall:
        """A rank enters a call."""
        if self._over or self._fault is not None:
            self._refuse(name)
        if greenlet.getcurrent() is not self._stacks[rank]:
            self.stop(errors.not_from_here(rank, name))
        call = OpenCall(rank, name, self.lines.here(), self.lines)
        if inside_tensors():
            self.stop(errors.communication_in_tensors(rank, name, call.line))
        self._entered += 1
        if self._entered > CALLS:
            self.stop(errors.too_many_calls(CALLS, rank, name, self.lines))
        if self._entered % 64 == 0 and time.monotonic() > self._until:
            self.stop(errors.out_of_time(self._deadline, None, self.lines))
        self.changes.observe(rank, self._last[rank])
        return call

    def _refuse(self, name: str) -> NoReturn:
        """The run has ended, and a program that swallowed the reason does not go on."""
        own = self._hub is not None and greenlet.getcurrent().parent is self._hub
        if not own:
            raise errors.run_is_over(name)
        self._refused += 1
        while self._refused > REFUSALS:  # it swallows everything, again and again
            _ASIDE.append(greenlet.getcurrent())
            self._hub.switch()
        raise greenlet.GreenletExit

    def stop(self, fault: LabError) -> NoReturn:
        """End the run for this fault; a program that catches it changes nothing."""
        self._fault = self._fault or fault
        raise fault

    def says(self, name: str) -> bool:
        """Whether the program says this name."""
        if name not in self._says:
            self._says[name] = mentions(self._program, name)
        return self._says[name]

    def post(
        self, call: OpenCall, flat: Array, peer: int, tag: int, *, sends: bool, late: bool
    ) -> End:
        """Post one end of a message; the other may be there, or come later."""
        rank = call.rank
        if sends:
            self._refuse_poison(flat)
        eager = sends and 0 < self._eager >= flat.nbytes
        region = _region(flat, self.buffers[rank], self._addresses[rank])
        held = flat.copy() if sends else None
        end = End(call, sends, peer, tag, flat, held, region, eager, late)
        call.posts.append(end)
        self._idle_tests = 0
        other = self.mail.post(end)
        if other is not None:
            send, receive = (end, other) if sends else (other, end)
            self._match(send, receive)
            for one in {rank, other.rank}:
                self._wake(one)
        return end

    def _match(self, send: End, receive: End) -> None:
        assert send.flat is not None
        assert receive.flat is not None
        if send.flat.dtype != receive.flat.dtype and send.flat.size:
            self.stop(errors.different_dtypes(send, receive))
        if send.flat.size > receive.flat.size:
            self.stop(errors.too_long(send, receive))
        self.mail.match(send, receive)

    def begin(self, call: OpenCall, end: End | None) -> Request:
        """Come back from a non-blocking call with a request for its end."""
        if end is not None and not end.sends and end.flat is not None:
            # What reads it before Wait shall not find what was there before.
            end.before = end.flat.copy()
            _poison(end.flat, len(self._poisoned) + 1)
            end.held = end.flat.copy()
            self._poisoned.append(end)
            self.changes.hidden[call.rank].append(end)
        mpi: Any = sys.modules.get("mpi4py.MPI")
        if mpi is not None and mpi.Request is not Request:
            # MPI.Request.Waitall, as every tutorial has it, must know our requests.
            self._lent = mpi, mpi.Request
            mpi.Request = Request
        self._leave(call)
        return Request(end, self, call.rank)

    def finish(
        self, call: OpenCall, ends: Sequence[End | None], statuses: Sequence[Any] = ()
    ) -> None:
        """Wait for the ends, put received data where they belong, come back from the call."""
        there = [end for end in ends if end is not None]
        call.awaits.extend(end for end in there if not end.eager)
        self._block(call, there, for_one=False)
        for end, status in zip_longest(ends, statuses):
            if end is not None:
                self._complete(end)
            if status is not None and not (end and end.sends):
                fill_status(status, end)
        self._leave(call)

    def wait_for_one(self, call: OpenCall, ends: Sequence[End]) -> None:
        """Wait until one of the ends is done."""
        self._block(call, list(ends), for_one=True)

    def give_way(self, call: OpenCall, end: End) -> None:
        """Let every other rank have its turn before a Test says that the message is not there."""
        if end.is_done:
            return
        self._idle_tests += 1
        self.waiting[call.rank] = (call, [end])
        if self._idle_tests > IDLE_TESTS:
            self.stop(errors.deadlock(self))
        self._ready.append(call.rank)
        self._away()
        self.waiting[call.rank] = None

    def barrier(self, rank: int) -> None:
        """Wait until every rank is at the barrier."""
        call = self.enter(rank, "Barrier")
        call.barrier = self._barriers
        self._at_barrier.append(call)
        if len(self._at_barrier) < self.ranks:
            self.waiting[rank] = (call, [])
            self._away()
        else:
            self._barriers += 1
            for other in self._at_barrier[:-1]:
                self._go_on(other.rank)
            self._at_barrier = []
        self._leave(call)

    # How ranks wait and go on.

    def _wake(self, rank: int) -> None:
        waiting = self.waiting[rank]
        if waiting is None or not waiting[1] or waiting[0].name == "Test":
            return
        enough = any if self._for_one[rank] else all
        if enough(end.is_done for end in waiting[1]):
            self._go_on(rank)

    def _go_on(self, rank: int) -> None:
        self.waiting[rank] = None
        self._ready.append(rank)

    def _block(self, call: OpenCall, ends: list[End], *, for_one: bool) -> None:
        enough = any if for_one else all
        if ends and not enough(end.is_done for end in ends):
            self.waiting[call.rank] = (call, ends)
            self._for_one[call.rank] = for_one
            self._away()

    def _away(self) -> None:
        """Let the other ranks go on."""
        self._hub.switch()
        if self._fault is not None:
            raise greenlet.GreenletExit

    def _complete(self, end: End) -> None:
        if not end.keeps_its_memory():
            self.stop(errors.memory_changed(end))
        message = end.message
        if not end.sends and message is not None and end.flat is not None:
            if end.before is not None:
                end.flat[:] = end.before
                self.changes.hidden[end.rank].remove(end)
            end.flat[: message.count] = message.data
            message.data = None
        end.let_go()

    def _refuse_poison(self, flat: Array) -> None:
        """Stop if what a rank sends or ends with was made from memory that was still receiving."""
        number = _poison_in(flat) if self._poisoned else 0
        if number:
            self.stop(errors.read_too_early(self._poisoned[min(number, len(self._poisoned)) - 1]))

    def _leave(self, call: OpenCall) -> None:
        call.number = len(self.calls)
        self._last[call.rank] = call
        self.calls.append(call)


class Changes:
    """What changes in each rank's buffer, seen whenever the rank enters a call and when it ends."""

    def __init__(self, buffers: list[Array]) -> None:
        self.complete = True
        self.hidden: list[list[End]] = [[] for _ in buffers]  # receives under way: not seen yet
        self._found: list[tuple[OpenCall | None, int, int, bytes]] = []
        self._bytes = 0
        self._live = [_words(buffer) for buffer in buffers]
        self._seen = [words.copy() for words in self._live]
        self._flat = [buffer.reshape(-1) for buffer in buffers]

    def observe(self, rank: int, last: OpenCall | None) -> None:
        """Keep what has changed since the last time, after the last call that came back."""
        if not self.complete:
            return
        live, seen = self._live[rank], self._seen[rank]
        differs = live != seen
        if differs.ndim > 1:
            differs = differs.any(axis=1)
        for end in self.hidden[rank]:
            if end.region is not None:
                differs[end.region[0] : end.region[1]] = False
        changed = differs.nonzero()[0]
        if not changed.size:
            return
        for start, stop in _runs(changed):
            data = self._flat[rank][start:stop].tobytes()
            self._found.append((last, rank, start, data))
            seen[start:stop] = live[start:stop]
            self._bytes += len(data)
        if self._bytes > KEEP:
            self.complete, self._found, self._seen = False, [], []

    def states(self) -> tuple[State, ...]:
        """The changes as plain data, when the calls have their steps."""
        return tuple(
            State(last.step if last else 0, rank, start, data)
            for last, rank, start, data in self._found
        )


def _runs(changed: Array) -> list[tuple[int, int]]:
    first, last = int(changed[0]), int(changed[-1])
    if last - first < changed.size + GAP:
        return [(first, last + 1)]
    cuts = np.flatnonzero(np.diff(changed) > GAP) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(changed, cuts)]


def _words(buffer: Array) -> Array:
    """The buffer's bits as whole numbers, one or more to an element: NaN is not equal to itself."""
    size = buffer.itemsize
    word = next(width for width in (8, 4, 2, 1) if size % width == 0)
    words = buffer.reshape(-1).view(f"u{word}")
    return words if size == word else words.reshape(-1, size // word)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _region(flat: Array, buffer: Array, start: int) -> tuple[int, int] | None:
    """The elements (first, last + 1) of a rank's buffer that `flat` is; None when it is elsewhere.

    `start` is the address of the buffer, which does not change.
    """
    if flat.base is not buffer and flat is not buffer:
        return None
    first = (_address(flat) - start) // buffer.itemsize
    count = -(-flat.nbytes // buffer.itemsize)
    return (first, first + count) if 0 <= first <= buffer.size else None


# A signalling NaN with a number in it. Arithmetic makes it quiet, so that a write is seen, and
# passes the number on, which says from which receive it comes.
_PAYLOAD = 0x3FFFFF


def _poison(flat: Array, number: int) -> None:
    """Fill memory that is receiving with what no program can take for a result."""
    kind, parts = flat.dtype.kind, _float_words(flat)
    if parts is not None:
        bits = number & _PAYLOAD
        wide = parts.itemsize == 8
        parts[...] = 0x7FF0 << 48 | bits << 29 if wide else 0x7F80 << 16 | bits
    elif flat.dtype == np.float16:
        flat.view("u2")[...] = 0x7C01
    elif kind in "fcV":
        flat[...] = np.nan
    elif kind in "iu":
        limits = np.iinfo(flat.dtype)
        flat[...] = limits.min or limits.max
    else:
        flat[...] = ~flat


def _poison_in(flat: Array) -> int:
    """The number in the first such NaN; 0 where there is none."""
    parts = _float_words(flat)
    if parts is None:
        return 0
    found = parts[np.isnan(parts.view(f"f{parts.itemsize}"))]
    numbers = (found >> 29 if parts.itemsize == 8 else found) & _PAYLOAD
    return int(next(iter(numbers[numbers > 0]), 0))


def _float_words(flat: Array) -> Array | None:
    """The bits of floats of 4 and 8 bytes, and of the two halves of complex numbers."""
    width = flat.itemsize // (2 if flat.dtype.kind == "c" else 1)
    if flat.dtype.kind not in "fc" or width not in (4, 8) or not flat.dtype.isnative:
        return None
    return flat.view(f"u{width}")
