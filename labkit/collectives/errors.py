"""What a run that cannot go on says: which ranks, which calls, which lines, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from labkit.collectives.messages import End, Mailboxes, OpenCall
from labkit.collectives.records import Array, counted
from labkit.collectives.source import Lines
from labkit.kinds import LabError

__all__ = [
    "Stuck",
    "bad_buffer",
    "bad_rank",
    "bad_tag",
    "communication_in_tensors",
    "deadlock",
    "different_dtypes",
    "left_over",
    "memory_changed",
    "no_such_call",
    "not_from_here",
    "out_of_time",
    "rank_raised",
    "read_too_early",
    "run_is_over",
    "too_long",
    "too_many_calls",
]

CALLS = "Send, Recv, Sendrecv, Isend, Irecv, Barrier, Get_rank and Get_size"
WHOLE = {
    "Allreduce", "Allgather", "Alltoall", "Bcast", "Gather", "Reduce", "Reduce_scatter", "Scatter",
}  # fmt: skip
NAMED = 4  # ranks of a ring that are named one by one


# Mistakes in one call.


def _call(call: OpenCall) -> str:
    return f"Rank {call.rank}'s {call.name} ({call.line})"


def bad_rank(call: OpenCall, other: Any, ranks: int, is_null: bool) -> LabError:
    """A message to or from a rank that does not exist."""
    last = f"There are ranks 0 to {ranks - 1}" if ranks > 1 else "There is only rank 0"
    advice = "; divide with //" if isinstance(other, float) else ""
    if is_null:  # the number of PROC_NULL, in a program that does not say PROC_NULL
        advice = ", and a rank without a neighbour writes MPI.PROC_NULL"
    return LabError(
        f"{_call(call)} names rank {other!r}. {last}: the neighbour of the last is "
        f"(rank + 1) % size{advice}."
    )


def bad_tag(call: OpenCall, tag: Any) -> LabError:
    """A tag that MPI does not know."""
    return LabError(f"{_call(call)}: tag must be a whole number ≥ 0, got {tag!r}.")


def bad_buffer(call: OpenCall, problem: str) -> LabError:
    """Something that cannot be sent or received into as it lies in memory."""
    return LabError(f"{_call(call)} {problem}")


def no_such_call(name: str) -> LabError:
    """A call of mpi4py that programs of this course do not use."""
    whole = name.capitalize()
    if f"{whole}," in f"{CALLS},":
        advice = f"Use comm.{whole}, which sends numpy arrays as they lie in memory"
    elif whole in WHOLE:
        advice = f"Here you write it yourself, from {CALLS}; or take one of collectives.programs"
    else:
        advice = f"There are {CALLS}"
    return LabError(f"The simulated communicator has no comm.{name}. {advice}.")


def not_from_here(rank: int, name: str) -> LabError:
    """A communicator that went to another rank, or to a thread."""
    return LabError(
        f"Rank {rank}'s {name} was called from a thread, or by another rank. Each rank uses its "
        "own communicator, in the function that was given it; Isend and Irecv go on meanwhile."
    )


def communication_in_tensors(rank: int, name: str, line: str) -> LabError:
    """A call from inside a call of TensorFlow: changing ranks there would end the process."""
    return LabError(
        f"Rank {rank}'s {name} ({line}) is inside a call of TensorFlow or a library like it, such "
        "as a custom gradient. Simulated ranks take turns in one process, and cannot do that "
        "there: communicate between tapes, with the gradients that tape.gradient gives back."
    )


def run_is_over(name: str) -> LabError:
    """A communicator was kept and used."""
    return LabError(
        f"{name} was called when the run had ended. A communicator works only inside the program "
        "that was given it."
    )


# Mistakes in a message.


def different_dtypes(send: End, receive: End) -> LabError:
    """The two ends of a message do not hold the same kind of number."""
    return _ends(
        send, f"{_flat(send).dtype}", receive, f"{_flat(receive).dtype}",
        "Give both the same dtype.",
    )  # fmt: skip


def too_long(send: End, receive: End) -> LabError:
    """A message that does not fit."""
    return _ends(
        send, counted(_flat(send).size, "element"),
        receive, counted(_flat(receive).size, "element"),
        "A message must not be longer than the buffer it is received into.",
    )  # fmt: skip


def _flat(end: End) -> Array:
    assert end.flat is not None
    return end.flat


def _ends(send: End, sent: str, receive: End, received: str, advice: str) -> LabError:
    return LabError(
        f"Rank {send.rank}'s {send.words} holds {sent}, and rank {receive.rank}'s "
        f"{receive.words} holds {received}. {advice}"
    )


def memory_changed(end: End) -> LabError:
    """A program that wrote into memory that a message was using."""
    what = "sends" if end.sends else "receives into"
    return LabError(
        f"Rank {end.rank} changed what its {end.words} {what}, before it had waited for it. Until "
        "Wait is back the buffer belongs to the message: wait first, or use another array."
    )


def read_too_early(end: End) -> LabError:
    """A program that used what was still being received."""
    return LabError(
        f"Rank {end.rank} read what its {end.words} receives into, before it had waited for it. "
        "The buffer is undefined until Wait returns: wait first."
    )


def left_over(mail: Mailboxes, calls: Sequence[OpenCall]) -> LabError | None:
    """All ranks have ended, and a message has not arrived or a request was not waited for."""
    for end in (end for ends in mail.offered for end in ends):
        return LabError(
            f"Rank {end.peer} never receives the message of rank {end.rank}'s {end.words}"
            f"{_tag(end)}. Every message needs its receive, and every Isend its Wait."
        )
    for end in (end for ends in mail.wanted for end in ends):
        return LabError(
            f"No message ever comes for rank {end.rank}'s {end.words}{_tag(end)}. Every receive "
            "needs its message, and every Irecv its Wait."
        )
    for end in (end for call in calls for end in call.posts):
        if end.late and not end.waited:
            return LabError(
                f"Rank {end.rank} never waits for its {end.words}. "
                f"Keep the request that {end.call.name} gives back, and call its Wait()."
            )
    return None


def _tag(end: End) -> str:
    return f" with tag {end.tag}" if end.tag > 0 else ""


# Programs that raise, or do not end.


def rank_raised(rank: int, fault: BaseException, lines: Lines) -> LabError:
    """A rank's own exception."""
    text = f": {fault}" if str(fault) else ""
    advice = ""
    if isinstance(fault, TypeError) and "mpi4py.MPI.Request" in str(fault):
        advice = " Write MPI.Request.Waitall(requests), or take Request from labkit.collectives."
    where = lines.of_exception(fault.__traceback__)
    return LabError(f"Rank {rank} raised {type(fault).__name__}{text} ({where}).{advice}")


def too_many_calls(limit: int, rank: int, name: str, lines: Lines) -> LabError:
    """A program that communicates for ever."""
    return LabError(
        f"The ranks made {limit:,} calls and had not ended; the last was rank {rank}'s {name} "
        f"({lines.words(lines.here())}). Look for a loop that does not end."
    )


def out_of_time(deadline: float, late: BaseException | None, lines: Lines) -> LabError:
    """A program that takes too long."""
    where = lines.of_exception(late.__traceback__) if late else lines.words(lines.here())
    return LabError(
        f"The program had not ended after {deadline:g} s; it was at {where}. Look for a loop that "
        "does not end, or give run more time with deadline=."
    )


# Deadlocks.


class Stuck(Protocol):
    """What there is to know about a run in which every rank that has not ended waits."""

    ranks: int
    ended: list[bool]
    mail: Mailboxes
    waiting: list[tuple[OpenCall, list[End]] | None]


def deadlock(run: Stuck) -> LabError:
    """The ring of ranks that wait for one another, or the one that waits for an ended rank."""
    chain = _chain(run)
    parts = [f"rank {rank} waits {_what(run, rank, other)}" for rank, other in chain]
    if len(parts) > NAMED + 1:
        more = f"and so on for {len(parts) - NAMED:,} more ranks"
        parts = [*parts[: NAMED - 1], more, parts[-1]]
    last = chain[-1][1]
    end = ", and all other ranks have ended" if last is None else ""
    if last is not None and run.ended[last]:
        end = f", and rank {last} has ended"
    return LabError(f"Deadlock: {', '.join(parts)}{end}. {_advice(run, chain, last)}")


def _chain(run: Stuck) -> list[tuple[int, int | None]]:
    """Ranks, each with the one it waits for: a ring, or the last that waits in vain."""
    best: list[tuple[int, int | None]] = []
    for first in (rank for rank in range(run.ranks) if run.waiting[rank] is not None):
        chain: list[tuple[int, int | None]] = []
        rank: int | None = first
        while rank is not None and run.waiting[rank] and rank not in {one for one, _ in chain}:
            chain.append((rank, _waits_for(run, rank)))
            rank = chain[-1][1]
        if rank == first:
            return chain
        best = best or chain
    return best[-1:]  # what leads to the last only waits for it


def _open(run: Stuck, rank: int) -> tuple[OpenCall, list[End]]:
    waiting = run.waiting[rank]
    assert waiting is not None
    call, ends = waiting
    return call, [end for end in ends if not end.is_done]


def _waits_for(run: Stuck, rank: int) -> int | None:
    """One rank that this one cannot go on without; one that has ended before all others."""
    call, ends = _open(run, rank)
    others = [end.peer for end in ends]
    if call.barrier is not None:
        there = [one and one[0].barrier for one in run.waiting]
        others = [other for other in range(run.ranks) if there[other] != call.barrier]
    elif any(peer < 0 for peer in others):
        others = [other for other in range(run.ranks) if other != rank and not run.ended[other]]
    ended = [other for other in others if run.ended[other]]
    return next(iter(ended or others), None)


def _end_of(run: Stuck, rank: int, other: int | None) -> End | None:
    """The end of a message that a rank waits for; None at a barrier."""
    call, ends = _open(run, rank)
    if call.barrier is not None:
        return None
    return next((end for end in ends if end.peer == other), ends[0])


def _what(run: Stuck, rank: int, other: int | None) -> str:
    call, end = _open(run, rank)[0], _end_of(run, rank, other)
    if end is None:
        return f"in Barrier for rank {other} ({call.line})"
    if end.call is call:
        return f"in {end.words}"
    return f"in {call.name} ({call.line}) for its {end.words}"


def _advice(run: Stuck, chain: list[tuple[int, int | None]], last: int | None) -> str:
    for rank, _ in chain:
        for wanted in run.mail.wanted[rank]:
            for offered in run.mail.offered[rank]:
                if wanted.peer == offered.rank or wanted.peer < 0:
                    return (
                        f"Rank {offered.rank} offers rank {rank} a message with tag {offered.tag}, "
                        f"and rank {rank} takes only one with tag {wanted.tag}: give both the "
                        "same tag."
                    )
    ends = [_end_of(run, rank, other) for rank, other in chain]
    if None in ends:
        return "Every rank has to come to every Barrier, with its messages done before."
    if last is None or run.ended[last]:
        return "Every receive needs a send, and every send a receive."
    if len(chain) == 1:
        return "A rank need not send to itself: copy, or use Sendrecv."
    if all(end.sends for end in ends if end):
        return (
            "Every Send waits for its receiver (MPI's own may not, for small messages only): let "
            "one of the ranks receive first, or use Sendrecv."
        )
    if not any(end.sends for end in ends if end):
        return "Each waits for what another sends only afterwards: let one of the ranks send first."
    return "Let the ranks call in an order in which each send meets its receive."
