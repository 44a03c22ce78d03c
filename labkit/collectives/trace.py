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
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.arguments import near, number, whole
from labkit.collectives import clock, errors
from labkit.collectives.buffers import OPERATIONS, make_buffers
from labkit.collectives.check import CollectiveCheck, Fault, check, where_wrong
from labkit.collectives.communicator import Communicator, NoWorld, lent_to_mpi4py
from labkit.collectives.contributions import Contributions, contributions
from labkit.collectives.library import CALLS
from labkit.collectives.messages import End, Lines, OpenCall
from labkit.collectives.records import Array, Call, Message, Record, State
from labkit.collectives.scheduler import Scheduler
from labkit.collectives.specs import is_whole
from labkit.collectives.topology import Topology
from labkit.kinds import LabError, Seconds, bytes_text, counted
from labkit.mpi.run import MOST_PROCESSES, run_processes
from labkit.shipping import copies

if TYPE_CHECKING:
    from labkit.views.embed import Player
    from labkit.views.figure import Picture
    from labkit.views.together import Together

MOST_RANKS = 256  # a ring of them makes 130,000 calls, in 10 s


def run(
    program: Callable[..., Any], inputs: Sequence[Any] | None = None, *, ranks: int | None = None,
    eager: int = 0, timeout: float = 60.0, **options: Any,
) -> Trace:  # fmt: skip
    """Run `program(comm, buffer, **options)` on every rank, in turns, in this process.

    `inputs` holds one array per rank, and each is copied; `ranks=8` makes some: rank r gets the
    whole numbers from 8r + 1 to 8r + 8. A `Send` waits for its receiver, whatever its size, so that
    a program that ends here ends for messages of every size; MPI libraries do not wait with small
    ones, and `eager=4096` does the same for those of up to 4,096 bytes.
    """
    check_program(program, options)
    number("timeout", timeout, above=0)
    whole("eager", eager)
    buffers = make_buffers(inputs, ranks, MOST_RANKS)
    return simulate(program, buffers, options, eager=eager, timeout=timeout)


def run_mpi(
    program: Callable[..., Any], inputs: Sequence[Any] | None = None, *, ranks: int | None = None,
    timeout: float = 60.0, **options: Any,
) -> list[Array]:  # fmt: skip
    """Run `program(comm, buffer)` in a process per rank. Returns the buffers that it leaves.

    `comm` is mpi4py's COMM_WORLD. A program that does not end is stopped after `timeout` seconds.
    """
    check_program(program, options)
    number("timeout", timeout, above=0, at_most=1e6)
    buffers = make_buffers(inputs, ranks, MOST_PROCESSES)
    return run_processes(program, buffers, options, timeout, _raised)


def _raised(rank: int, fault: BaseException, program: Callable[..., Any]) -> str:
    return errors.rank_raised(rank, fault, Lines(program))


def simulate(
    program: Callable[..., Any], inputs: Sequence[Array], options: dict[str, Any], *,
    eager: int = 0, timeout: float = 60.0, apart: bool = False,
) -> Trace:  # fmt: skip
    """Run the program on a copy of each input, `apart`: with ranks that share no variable."""
    buffers = [np.array(one, order="C", copy=True) for one in inputs]
    bound = partial(program, **options)
    programs = copies(bound, len(buffers)) if apart else [bound] * len(buffers)
    ranks = Scheduler(program, buffers, eager)
    returned: list[Any] = [None] * len(buffers)

    def work(rank: int) -> None:
        returned[rank] = programs[rank](Communicator(ranks, rank), buffers[rank])

    with lent_to_mpi4py(*programs, COMM_WORLD=NoWorld(ranks.lines)):
        ranks.run(work, timeout)
    before, after = _read_only(inputs), _read_only(buffers)
    op, root = (_option(bound, name) for name in ("op", "root"))
    trace = Trace(
        program=str(getattr(bound.func, "__name__", type(bound.func).__name__)),
        ranks=len(buffers),
        options={name: repr(value) for name, value in bound.keywords.items()},
        sources=tuple(ranks.lines.sources),
        calls=tuple(_call(call) for call in ranks.calls),
        messages=tuple(_message(send) for send in ranks.messages),
        inputs=before,
        outputs=after,
        again=partial(simulate, program, options=options, eager=eager, timeout=timeout),
        states=(),
        steps=0,
        complete=ranks.log.complete,
        op=op if isinstance(op, str) and op in OPERATIONS else None,
        root=int(root) if is_whole(root) else 0,
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


def _option(program: partial[Any], name: str) -> Any:
    """Returns an option of the program, or its default."""
    try:
        return inspect.signature(program).parameters[name].default
    except (KeyError, ValueError):
        return program.keywords.get(name)


def _note(
    run: Scheduler, returned: list[Any], before: Sequence[Array], after: Sequence[Array]
) -> str:
    """Returns what is odd about a run that came to its end."""
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

    def check(self, collective: str, op: Any = None, root: int | None = None) -> CollectiveCheck:
        """Returns whether every rank ended with what the collective must leave, or the faults."""
        return check(self, collective, op=op, root=root)

    def timed(
        self, latency: float | None = None, bandwidth: float | str | None = None,
        topology: Topology | None = None,
    ) -> clock.TimedRun:  # fmt: skip
        """Returns when each message would begin and end on given links, modelled."""
        return clock.timed(self, latency, bandwidth, topology)

    def cost(
        self, latency: float | None = None, bandwidth: float | str | None = None,
        topology: Topology | None = None,
    ) -> Seconds:  # fmt: skip
        """Returns how long the run would take on given links, modelled message by message."""
        return self.timed(latency, bandwidth, topology).seconds

    def contributions(self, op: str | None = None) -> Contributions:
        """Returns whose contributions each rank holds after each step."""
        return contributions(self, op)

    def picture(
        self, latency: float | None = None, bandwidth: float | str | None = None,
        topology: Topology | None = None,
    ) -> Picture:  # fmt: skip
        """Returns a picture of when each rank sends, receives and waits on given links."""
        return self.beside(latency=latency, bandwidth=bandwidth, topology=topology).picture()

    def beside(
        self, *others: Trace, latency: float | None = None, bandwidth: float | str | None = None,
        topology: Topology | None = None,
    ) -> Together:  # fmt: skip
        """Returns this run and others under one clock: `.picture()` draws them, `.player()` plays.

        >>> naive.beside(ring, latency=5e-6, bandwidth=10e9)        # doctest: +SKIP
        """
        from labkit.collectives.page.player import players
        from labkit.collectives.page.run_timeline import timeline
        from labkit.views.together import Together

        runs = self, *others
        times = [one.timed(latency, bandwidth, topology) for one in runs]
        drawn = cache(partial(timeline, runs, times))
        return Together(
            drawn, lambda: players(runs, [one.contributions() for one in runs], times, drawn)
        )

    def player(
        self, op: str | None = None, latency: float = 5e-6, bandwidth: float | str = 10e9,
        topology: Topology | None = None, brief: bool = False,
    ) -> Player:  # fmt: skip
        """Returns the run as an animation, its times modelled on these links or this topology.

        A brief one shows only ranks and messages, and plays as soon as it is in sight.
        """
        from labkit.collectives.page.player import player

        timed = self.timed(topology=topology) if topology else self.timed(latency, bandwidth)
        held = self.contributions(op)
        wrong = where_wrong(self.faults, held, self.steps) if self.faults else []
        return player(self, held, timed, wrong, brief=brief)

    def __repr__(self) -> str:
        busiest = bytes_text(max(self.bytes_sent, default=0))
        counts = (counted(self.ranks, "rank"), counted(len(self.messages), "message"))
        text = (
            f"Trace({self.program}: {', '.join(counts)}, {counted(self.steps, 'step')}, "
            f"{busiest} from the busiest rank)"
        )
        return f"{text}\n{self.note}" if self.note else text

    def _repr_mimebundle_(self, **_: object) -> Any:
        """Returns the animation, with the one line where only text is read."""
        data, metadata = self.player()._repr_mimebundle_()
        return {**data, "text/plain": repr(self)}, metadata


def check_program(program: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuse what is no program, or cannot take these options."""
    if not callable(program):
        raise LabError(
            f"program must be a function of (comm, buffer), such as "
            f"collectives.programs.ring_all_reduce, got {program!r}."
        )
    with suppress(ValueError):  # it has no signature to look at
        try:
            signature = inspect.signature(program)
            signature.bind(None, None, **options)
        except TypeError as fault:
            name = getattr(program, "__name__", type(program).__name__)
            given = "".join(f", {option}=..." for option in options)
            known = [*signature.parameters, "inputs", "ranks", "eager", "timeout"]
            hint = "".join(near(option, known) for option in options if option not in known)
            raise LabError(
                f"{name} cannot be called as program(comm, buffer{given}): {fault}. Write "
                f"def program(comm, buffer), and give run the keywords that it needs.{hint}"
            ) from None
    for option in {"per_node", "pieces"} & set(options):
        whole(option, options[option], at_least=1)
