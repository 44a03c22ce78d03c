"""N ranks in one process: each has a stack of its own, and they take turns.

A rank runs until it has to wait; then the next that can go on does, in the order of ranks. Nothing
depends on time or chance, so the same program always leaves the same record. Whenever a rank makes
a call, what has changed in its buffer is kept.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives import errors
from labkit.collectives.messages import (
    Context,
    End,
    Lines,
    Mailboxes,
    Meeting,
    OpenCall,
)
from labkit.collectives.records import Array
from labkit.kinds import LabError
from labkit.shipping import exit_is_return
from labkit.time_limit import TimeLimit, time_limit

KEEP = 16_000_000  # bytes; a run that changes more keeps no states
# Stacks of programs that no exception ends; a stack that is garbage would run again.
_KEPT: list[Any] = []


class Scheduler:
    """The ranks of one run, what they wait for, and what they have done."""

    def __init__(self, program: Callable[..., Any], buffers: list[Array], eager: int) -> None:
        self.ranks = len(buffers)
        self.lines = Lines(program)
        self.calls: list[OpenCall] = []  # that have returned
        self.messages: list[End] = []  # the sends that were matched
        self.world = Context(tuple(range(self.ranks)), is_world=True)
        self.mail = Mailboxes(self.ranks)
        self.log = BufferLog(buffers)
        self._buffers = buffers
        self._eager = eager
        self._last: list[OpenCall | None] = [None] * self.ranks  # of each rank, to return
        self._waiting: list[OpenCall | None] = [None] * self.ranks
        self._goes_on: list[Callable[[], bool]] = [lambda: True] * self.ranks
        self._meetings = 0  # Barriers, Splits and other collectives that a rank has come to
        self._receiving: list[list[End]] = [[] for _ in buffers]  # Irecvs before their Wait
        self._poisoned: list[End] = []  # all Irecvs, by the number in their memory
        self._fault: LabError | None = None
        self._over = False
        self._hub: Any = None
        self._stacks: list[Any] = []

    def run(self, work: Callable[[int], None], timeout: float) -> None:
        """Call `work(rank)` on every rank, to its end; what went wrong is raised."""
        import greenlet

        self._hub = greenlet.getcurrent()
        self._stacks = [greenlet.greenlet(partial(self._rank, work, r)) for r in range(self.ranks)]
        try:
            with time_limit(timeout):
                try:
                    self._take_turns()
                except TimeLimit as late:  # the next one may come while ranks clean up
                    self._name_the_line(late, timeout)
                finally:
                    self._clean_up()
        except TimeLimit as late:
            self._name_the_line(late, timeout)
        if self._fault is None and (text := errors.left_over(self.mail, self.calls)):
            self._fault = LabError(text)
        if self._fault is not None:
            raise self._fault

    def _name_the_line(self, late: TimeLimit, timeout: float) -> None:
        where = self.lines.of_exception(late.__traceback__)
        if where is None:  # it came between two ranks
            where = next((call.at.text for call in self._last if call), "its beginning")
        self._fault = self._fault or LabError(
            f"The program had not ended after {timeout:g} s; it was at {where}. Look for a "
            "loop that does not end, or give run more time with timeout=."
        )

    def _take_turns(self) -> None:
        moved = True
        while moved:
            moved = False
            for rank, stack in enumerate(self._stacks):
                if stack.dead or not self._goes_on[rank]():
                    continue
                moved = True
                stack.switch()
                if self._fault is not None:
                    return
        if not all(stack.dead for stack in self._stacks):
            self._fault = LabError(errors.deadlock(self._waiting, self.mail))

    def _clean_up(self) -> None:
        """Let the `finally` blocks of ranks that still wait run; their calls do not return."""
        self._over = True
        for stack in self._stacks:
            if stack:
                stack.throw()
        _KEPT.extend(stack for stack in self._stacks if stack)

    def _rank(self, work: Callable[[int], None], rank: int) -> None:
        try:
            with exit_is_return():
                work(rank)
            self.log.observe(rank, self._last[rank], self._receiving[rank])
            if not self._receiving[rank]:
                self._refuse_poison(self._buffers[rank].reshape(-1))
        except LabError as fault:
            self._fault = self._fault or fault
        except (Exception, SystemExit) as fault:  # noqa: BLE001 (it is raised with its rank)
            if self._fault is None:
                self._fault = LabError(errors.rank_raised(rank, fault, self.lines))
                self._fault.__cause__ = fault

    # What the calls of a communicator are made of.

    def enter(
        self, rank: int, name: str, context: Context | None = None, inside: OpenCall | None = None
    ) -> OpenCall:
        """A rank makes a call; `inside`: the program's call that it is a part of."""
        import greenlet

        if greenlet.getcurrent() is not self._stacks[rank]:
            raise self.fault(
                f"Rank {rank}'s {name} was called after the run had ended, from a thread, or by "
                "another rank. Use a communicator only in the function that was given it."
            )
        if self._over or self._fault is not None:
            self._hub.switch()  # the program has caught what ended the run
        at = inside.at if inside else self.lines.here()
        call = OpenCall(rank, inside.name if inside else name, at, context or self.world)
        if call.at.in_tensors:
            raise self.fault(
                f"{call.words} is inside a call of TensorFlow or a library like it, such as a "
                "custom gradient. Simulated ranks take turns in one process, and cannot do that "
                "there: communicate between tapes, with the gradients that tape.gradient returns."
            )
        self.log.observe(rank, self._last[rank], self._receiving[rank])
        return call

    def fault(self, text: str) -> LabError:
        """Returns the error that ends the run, also when the program catches it."""
        self._fault = self._fault or LabError(text)
        return self._fault

    def post(
        self, call: OpenCall, memory: Array, peer: int, tag: int, *, sends: bool, late: bool
    ) -> End:
        """Post one end of a message; the other may be there, or come later."""
        region = self.log.region(call.rank, memory)
        end = End(call, sends, peer, tag, memory, region, memory.size, memory.nbytes, late=late)
        if sends:
            self._refuse_poison(memory)
            end.held = memory.copy()
            end.eager = 0 < self._eager >= memory.nbytes and call.name not in ("Ssend", "Issend")
        elif late:
            # What reads it before Wait shall not find what was there before.
            end.before = memory.copy()
            self._poisoned.append(end)
            poison(memory, len(self._poisoned))
            end.held = memory.copy()
            self._receiving[call.rank].append(end)
        call.posts.append(end)
        if pair := self.mail.post(end):
            send, receive = pair
            send.other, receive.other = receive, send
            send.number = len(self.messages)
            self.messages.append(send)
            if text := errors.unlike_ends(send, receive):
                raise self.fault(text)
            receive.data = send.held
        return end

    def wait_for(
        self, call: OpenCall, ends: list[End], enough: Callable[[Iterable[bool]], bool] = all
    ) -> None:
        """Wait until all of the ends are done, or any."""
        call.pending = ends
        self._wait(call, lambda: enough(end.is_done for end in ends))

    def meet(self, call: OpenCall, color: int = 0, key: int = 0) -> Meeting:
        """Wait until every rank of the communicator makes this call."""
        call.meeting = meeting = call.context.arrive(call, (color, key))
        if text := errors.unlike_calls(meeting):
            raise self.fault(text)
        if meeting.number < 0:
            meeting.number = self._meetings
            self._meetings += 1
        self._wait(call, lambda: len(meeting.given) == len(call.context.ranks))
        return meeting

    def probe(self, call: OpenCall, peer: int, tag: int) -> End:
        """Wait for the message that such a receive would take, and leave it where it is."""
        wanted = End(call, False, peer, tag, None, None, 0, 0)
        call.pending = [wanted]
        self._wait(call, lambda: self.mail.offer(wanted) is not None)
        offer = self.mail.offer(wanted)
        assert offer is not None
        return offer

    def split(self, call: OpenCall, color: int, key: int) -> Context:
        """Returns the communicator of the ranks that give the same color."""
        meeting = self.meet(call, color, key)
        if color not in meeting.parts:
            meeting.parts[color] = Context(call.context.part(meeting, color))
        return meeting.parts[color]

    def finish(self, call: OpenCall, ends: Sequence[End | None] = ()) -> None:
        """Wait for the ends, put received data where they belong, return from the call."""
        there = [end for end in ends if end is not None]
        self.wait_for(call, there)
        for end in there:
            self._complete(end)
        call.awaits += [end for end in there if not end.eager]
        call.number = len(self.calls)
        self.calls.append(call)
        self._last[call.rank] = call

    def _wait(self, call: OpenCall, goes_on: Callable[[], bool]) -> None:
        """Let the other ranks take their turns until the call can go on."""
        if not goes_on():
            self._waiting[call.rank], self._goes_on[call.rank] = call, goes_on
            self._hub.switch()
            self._waiting[call.rank] = None

    def _complete(self, end: End) -> None:
        assert end.memory is not None
        if end.late and end.held is not None and end.held.tobytes() != end.memory.tobytes():
            raise self.fault(errors.not_waited(end, "changed"))
        if not end.sends:
            if end.before is not None:
                end.memory[:] = end.before
                self._receiving[end.rank].remove(end)
            end.memory[: end.message.count] = end.data
        end.waited = True
        end.memory = end.before = end.data = None
        if end.other is not None:
            end.held = None  # what waits for its receiver is still needed

    def _refuse_poison(self, memory: Array) -> None:
        """Stop if what a rank sends or ends with was made from memory that was still receiving."""
        number = poisoned_by(memory) if self._poisoned else 0
        if 0 < number <= len(self._poisoned):
            raise self.fault(errors.not_waited(self._poisoned[number - 1], "read"))


class BufferLog:
    """The changes of each rank's buffer, noted when the rank makes a call and when it ends."""

    def __init__(self, buffers: list[Array]) -> None:
        self.complete = True
        self._buffers = buffers
        self._addresses = [_address(buffer) for buffer in buffers]
        self._live = [_words(buffer) for buffer in buffers]
        self._seen = [words.copy() for words in self._live]
        # After which call, on which rank, from which element on, what.
        self.found: list[tuple[OpenCall | None, int, int, bytes]] = []
        self._bytes = 0

    def region(self, rank: int, memory: Array) -> tuple[int, int] | None:
        """Returns the elements (start, stop) of the rank's buffer that this memory is, or None."""
        buffer = self._buffers[rank]
        offset = _address(memory) - self._addresses[rank]
        if not 0 <= offset <= buffer.nbytes - memory.nbytes:
            return None
        start = offset // buffer.itemsize
        return start, start - -memory.nbytes // buffer.itemsize

    def observe(self, rank: int, last: OpenCall | None, receiving: Iterable[End]) -> None:
        """Keep what has changed since the last time, after the last call that returned."""
        live, seen = self._live[rank], self._seen[rank]
        if not self.complete:
            return
        differs = live != seen
        for end in receiving:
            if end.region is not None:
                differs[slice(*end.region)] = False
        flat = differs.reshape(-1)  # its ends by argmax, which stops at the first
        if flat.size and flat[first := int(flat.argmax())]:
            width = differs.shape[1]
            start, stop = first // width, len(differs) - int(flat[::-1].argmax()) // width
            np.copyto(seen[start:stop], live[start:stop], where=differs[start:stop])
            data = seen[start:stop].tobytes()
            self.found.append((last, rank, start, data))
            self._bytes += len(data)
        if self._bytes > KEEP:
            self.complete, self.found = False, []


def _words(buffer: Array) -> Array:
    """Returns the bits as whole numbers, [element, word], since NaN is not equal to itself."""
    width = min(8, buffer.itemsize)
    return buffer.reshape(-1).view(f"u{width}").reshape(buffer.size, -1 if buffer.size else 1)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


# Memory that is receiving is filled with a signalling NaN that has a number. Arithmetic makes it
# quiet, so that a write is seen, and passes the number on, which says what receive it comes from.
_SIGNALLING = {4: 0x7F800000, 8: 0x7FF0000000000000}
_NUMBERS = 1 << 22


def poison(memory: Array, number: int) -> None:
    """Fill memory with NaNs of this number (from 1), which no program can take for a result."""
    if (words := _float_words(memory)) is not None:
        words[...] = _SIGNALLING[words.itemsize] + number % _NUMBERS
    else:
        memory.view("u1")[...] = 0x7D


def poisoned_by(memory: Array) -> int:
    """Returns the number of the first such NaN in memory, or 0, as for other dtypes."""
    if (words := _float_words(memory)) is None:
        return 0
    numbers = words[np.isnan(words.view(f"f{words.itemsize}"))] % _NUMBERS
    return int(next(iter(numbers[numbers > 0]), 0))


def _float_words(memory: Array) -> Array | None:
    """Returns the bits of floats of 4 and 8 bytes, and of both halves of complex numbers."""
    width = memory.itemsize // (2 if memory.dtype.kind == "c" else 1)
    if memory.dtype.kind not in "fc" or width not in _SIGNALLING:
        return None
    return memory.view(f"u{width}")
