"""Run a program on N simulated ranks, and hold what happened: to check, draw, time and play it.

>>> def halves(comm, buffer):
...     if comm.Get_rank() == 0:
...         comm.Send(buffer[:1], dest=1)
...     else:
...         comm.Recv(buffer[:1], source=0)
>>> run(halves, ranks=2)
Trace(halves: 2 ranks, 1 message, 1 step, 8 B from the busiest rank)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.arguments import number, whole
from labkit.collectives import clock, errors
from labkit.collectives.buffers import OPERATIONS
from labkit.collectives.check import Fault, Verdict, check, where_wrong
from labkit.collectives.communicator import Communicator, NoWorld, lent_to_mpi4py
from labkit.collectives.contributions import Contributions, contributions
from labkit.collectives.library import CALLS
from labkit.collectives.messages import End, Lines, OpenCall
from labkit.collectives.records import Array, Call, Message, Record, State, counted
from labkit.collectives.scheduler import Scheduler
from labkit.kinds import LabError, Seconds, bytes_text
from labkit.mpi.run import MOST_PROCESSES, run_processes

if TYPE_CHECKING:
    from labkit.views.embed import Player

MOST_RANKS = 256  # a ring of them makes 130,000 calls, in 10 s
# The player's links where none are given, a network between machines: 5 µs, 10 GB/s.
LINKS = {"latency": 5e-6, "bandwidth": 10e9}


def run(
    program: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    *,
    ranks: int | None = None,
    eager: int = 0,
    timeout: float = 60.0,
    **options: Any,
) -> Trace:
    """Run `program(comm, buffer, **options)` on every rank, in turns, in this process.

    `inputs` holds one array per rank, and each is copied; `ranks=8` makes some: rank r gets the
    whole numbers from 8r + 1 to 8r + 8. A `Send` waits for its receiver, whatever its size, so that
    a program that ends here ends for messages of every size; MPI libraries do not wait with small
    ones, and `eager=4096` does the same for those of up to 4,096 bytes.
    """
    check_program(program, options)
    number("timeout", timeout, above=0)
    whole("eager", eager)
    buffers = _make_buffers(inputs, ranks, MOST_RANKS)
    return simulate(program, buffers, options, eager=eager, timeout=timeout)


def run_mpi(
    program: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    *,
    ranks: int | None = None,
    timeout: float = 60.0,
    **options: Any,
) -> list[Array]:
    """What `run` does, in a process per rank: the buffers that `program(comm, buffer)` leaves.

    `comm` is mpi4py's COMM_WORLD. A program that does not end is stopped after `timeout` seconds.
    """
    check_program(program, options)
    number("timeout", timeout, above=0, at_most=1e6)
    buffers = _make_buffers(inputs, ranks, MOST_PROCESSES)
    return run_processes(program, buffers, options, timeout, _raised)


def _raised(rank: int, fault: BaseException, program: Callable[..., Any]) -> str:
    return errors.rank_raised(rank, fault, Lines(program))


def simulate(
    program: Callable[..., Any],
    inputs: Sequence[Array],
    options: dict[str, Any],
    *,
    eager: int = 0,
    timeout: float = 60.0,
) -> Trace:
    """Run the program on a copy of each input; raise what went wrong."""
    buffers = [np.array(one, order="C", copy=True) for one in inputs]
    ranks = Scheduler(program, buffers, eager)
    returned: list[Any] = [None] * len(buffers)

    def work(rank: int) -> None:
        returned[rank] = program(Communicator(ranks, rank), buffers[rank], **options)

    with lent_to_mpi4py(program, COMM_WORLD=NoWorld(ranks.lines)):
        ranks.run(work, timeout)
    before, after = _read_only(inputs), _read_only(buffers)
    keywords = {**getattr(program, "keywords", {}), **options}  # those of a functools.partial too
    inner = getattr(program, "func", program)
    trace = Trace(
        program=str(getattr(inner, "__name__", type(inner).__name__)),
        ranks=len(buffers),
        options={name: repr(value) for name, value in keywords.items()},
        sources=tuple(ranks.lines.sources),
        calls=tuple(_call(call) for call in ranks.calls),
        messages=tuple(_message(send) for send in ranks.messages),
        inputs=before,
        outputs=after,
        again=partial(simulate, program, options=options, eager=eager, timeout=timeout),
        states=(),
        steps=0,
        complete=ranks.log.complete,
        op=_operation(program, keywords),
        note=_note(ranks, returned, before, after),
    )
    return _with_steps(trace, ranks)


def _read_only(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Copies that cannot be changed."""
    copies = tuple(np.array(array, order="C", copy=True) for array in arrays)
    for copy in copies:
        copy.setflags(write=False)
    return copies


def _call(call: OpenCall, step: int = 0) -> Call:
    begins = tuple(end.message.number for end in call.posts)
    awaits = tuple(end.message.number for end in call.awaits)
    place, barrier = call.at.place, call.meeting.number if call.meeting else None
    library = call.at.library
    if call.name in CALLS:
        library = f"comm.{call.name}", len(call.context.ranks)
    return Call(call.number, call.rank, call.name, place, step, begins, awaits, barrier, library)


def _message(send: End, step: int = 0) -> Message:
    receive = send.other
    assert receive is not None
    into = receive.region and (receive.region[0], receive.region[0] + send.count)
    return Message(
        send.number, send.rank, receive.rank, send.tag, send.nbytes, send.count, step, send.region,
        into, send.call.number, receive.call.number,
    )  # fmt: skip


def _with_steps(trace: Trace, run: Scheduler) -> Trace:
    """Number steps: the ticks of a clock on which each message takes one, whatever its size.

    So they do not depend on the order in which the simulator happens to run the ranks.
    """
    ticks = clock.ticks(trace)
    arrived, returned = [int(end) for end in ticks.ends], [int(at) for at in ticks.returned]
    messages = [_message(send, arrived[send.number]) for send in run.messages]
    return replace(
        trace,
        messages=tuple(sorted(messages, key=lambda one: (one.step, one.source))),
        calls=tuple(_call(call, returned[call.number]) for call in run.calls),
        states=tuple(
            State(returned[last.number] if last else 0, rank, start, data)
            for last, rank, start, data in run.log.found
        ),
        steps=max(arrived, default=0),
    )


def _operation(program: Callable[..., Any], keywords: dict[str, Any]) -> str | None:
    """The name of the program's option `op`, or of its default."""
    try:
        default = inspect.signature(program).parameters["op"].default
    except (KeyError, ValueError):
        default = None
    op = keywords.get("op", default)
    return op if isinstance(op, str) and op in OPERATIONS else None


def _note(
    run: Scheduler, returned: list[Any], before: Sequence[Array], after: Sequence[Array]
) -> str:
    """What is odd about a run that came to its end."""
    arrays = any(isinstance(value, np.ndarray) for value in returned)
    if arrays and all(a.tobytes() == b.tobytes() for a, b in zip(before, after, strict=True)):
        return (
            "The program returned an array and left its buffer as it was: a program works in "
            "place, so write into the buffer (buffer[:] = result)."
        )
    return ""


@dataclass(frozen=True, repr=False)
class Trace(Record):
    """A program that ran: who sent what to whom, in which step, and what it made of the data."""

    faults: tuple[Fault, ...] = ()
    """What a check has found: the player opens at the first of it."""

    def check(self, collective: str, op: Any = None, root: int | None = None) -> Verdict:
        """Whether every rank ended with what the collective must leave; if not, what is wrong."""
        return check(self, collective, op=op, root=root)

    def timed(self, *arguments: Any, **keywords: Any) -> clock.Timed:
        """When each message would begin and end on given links, modelled."""
        return clock.timed(self, *arguments, **keywords)

    def cost(self, *arguments: Any, **keywords: Any) -> Seconds:
        """How long the run would take on given links, modelled message by message."""
        return self.timed(*arguments, **keywords).seconds

    def contributions(self, op: str | None = None) -> Contributions:
        """Whose contributions each rank holds after each step."""
        return contributions(self, op)

    def timeline(self, *arguments: Any, **keywords: Any) -> Any:
        """A picture of when each rank sends, receives and waits."""
        from labkit.views.timeline import timeline

        return timeline([self], *arguments, **keywords)

    def player(self, op: str | None = None, **links: Any) -> Player:
        """The run as an animation, its times modelled on links of your choice.

        Without latency=, bandwidth= or topology=, a message takes 5 µs and a second moves 10 GB.
        """
        from labkit.views.player_page import player

        links = links if "topology" in links else LINKS | links
        held = self.contributions(op)
        wrong = where_wrong(self.faults, held, self.steps) if self.faults else []
        return player(self, held, self.timed(**links), wrong)

    def __repr__(self) -> str:
        busiest = bytes_text(max(self.bytes_sent, default=0))
        counts = (counted(self.ranks, "rank"), counted(len(self.messages), "message"))
        text = (
            f"Trace({self.program}: {', '.join(counts)}, {counted(self.steps, 'step')}, "
            f"{busiest} from the busiest rank)"
        )
        return f"{text}\n{self.note}" if self.note else text

    def _repr_mimebundle_(self, **_: object) -> Any:
        """The animation, with the one line where only text is read."""
        data, metadata = self.player()._repr_mimebundle_()
        return {**data, "text/plain": repr(self)}, metadata


def compare(traces: Sequence[Trace], *arguments: Any, **keywords: Any) -> Any:
    """A picture of several runs under one clock: when each rank sends, receives and waits.

    >>> compare([naive, ring], latency=5e-6, bandwidth=10e9)        # doctest: +SKIP
    """
    from labkit.views.timeline import timeline

    if not traces or not all(isinstance(one, Trace) for one in traces):
        raise LabError("Give collectives.compare a list of traces; collectives.run returns one.")
    return timeline(traces, *arguments, **keywords)


def check_program(program: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuse what is no program, or cannot take these options."""
    if not callable(program):
        raise LabError(
            f"program must be a function of (comm, buffer), such as "
            f"collectives.programs.ring_all_reduce, got {program!r}."
        )
    with suppress(ValueError):  # it has no signature to look at
        try:
            inspect.signature(program).bind(None, None, **options)
        except TypeError as fault:
            name = getattr(program, "__name__", type(program).__name__)
            given = "".join(f", {option}=..." for option in options)
            raise LabError(
                f"{name} cannot be called as program(comm, buffer{given}): {fault}. Write "
                "def program(comm, buffer), and give run the keywords that it needs."
            ) from None
    for option in {"per_node", "pieces"} & set(options):
        whole(option, options[option], at_least=1)


def _make_buffers(inputs: Sequence[Any] | None, ranks: int | None, most: int) -> list[Array]:
    """A buffer per rank: a copy of each input, or whole numbers that count through the ranks."""
    if (inputs is None) == (ranks is None):
        raise LabError("A run needs its data: give inputs=[one array per rank], or ranks=8.")
    count = whole("ranks", ranks, at_least=1) if inputs is None else len(inputs)
    if count > most:
        raise LabError(
            f"At most {most} ranks run on one machine, got {count:,}. What labkit's own programs "
            "cost on many thousand ranks, collectives.cost computes."
        )
    if inputs is None:
        return [np.arange(1.0, count + 1) + rank * count for rank in range(count)]
    buffers = [np.array(item, order="C", copy=True) for item in inputs]
    dtypes = sorted({str(buffer.dtype) for buffer in buffers})
    if len(dtypes) != 1 or buffers[0].dtype.kind not in "biufc":
        raise LabError(
            "inputs must be an array of numbers for each rank, all of one dtype, got "
            f"{' and '.join(dtypes) or 'no array'}."
        )
    return buffers
