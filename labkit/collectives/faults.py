"""What a run that cannot go on says: which ranks, which calls, which lines, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labkit.kinds import LabError

if TYPE_CHECKING:
    import numpy as np

    from labkit.collectives.lines import Lines
    from labkit.collectives.posts import Entered, Mailboxes, Post

__all__ = [
    "count_too_large",
    "different_dtypes",
    "end_of_message",
    "left_over",
    "memory_changed",
    "no_array",
    "no_numbers",
    "no_such_call",
    "no_such_request_call",
    "not_contiguous",
    "not_from_here",
    "nothing_to_wait_for",
    "out_of_time",
    "rank_raised",
    "read_only",
    "run_is_over",
    "same_memory",
    "too_long",
    "too_many_calls",
    "wrong_rank",
    "wrong_tag",
]

CALLS = "Send, Recv, Sendrecv, Isend, Irecv, Barrier, Get_rank and Get_size"
WHOLE = (
    "Allreduce",
    "Allgather",
    "Alltoall",
    "Bcast",
    "Gather",
    "Reduce",
    "Reduce_scatter",
    "Scatter",
)


def end_of_message(post: Post, lines: Lines) -> str:
    """`Send to rank 1 (line 7)`."""
    way = "to" if post.sends else "from"
    other = f"rank {post.peer}" if post.peer >= 0 else "any rank"
    return f"{post.call.name} {way} {other} ({lines.words(post.call.spot)})"


def left_over(mail: Mailboxes, calls: Sequence[Entered], lines: Lines) -> LabError | None:
    """All ranks have ended, and a message has not arrived or a request was not waited for."""
    for post in (post for posts in mail.offered for post in posts):
        return LabError(
            f"Rank {post.peer} never receives the message of rank {post.rank}'s "
            f"{end_of_message(post, lines)}{_tag_words(post)}. Every message needs its receive, "
            "and every Isend its Wait."
        )
    for post in (post for posts in mail.wanted for post in posts):
        return LabError(
            f"No message ever comes for rank {post.rank}'s {end_of_message(post, lines)}"
            f"{_tag_words(post)}. Every receive needs its message, and every Irecv its Wait."
        )
    for post in (post for call in calls for post in call.posts):
        if post.late and not post.waited:
            return LabError(
                f"Rank {post.rank} never waits for its {end_of_message(post, lines)}. "
                f"Keep the request that {post.call.name} gives back, and call its Wait()."
            )
    return None


def rank_raised(rank: int, fault: BaseException, lines: Lines) -> LabError:
    """A rank's own exception."""
    said = f": {fault}" if str(fault) else ""
    where = lines.of_fault(fault.__traceback__)
    advice = ""
    if isinstance(fault, TypeError) and "mpi4py.MPI.Request" in str(fault):
        advice = " Take Request from labkit.collectives: Request.Waitall waits here and under MPI."
    return LabError(f"Rank {rank} raised {type(fault).__name__}{said} ({where}).{advice}")


def run_is_over(name: str) -> LabError:
    """A communicator was kept and used."""
    return LabError(
        f"{name} was called when the run had ended. A communicator works only inside the program "
        "that was given it."
    )


def not_from_here(rank: int, name: str) -> LabError:
    """A communicator that went to another rank, or to a thread."""
    return LabError(
        f"Rank {rank}'s {name} was called from a thread, or by another rank. Each rank uses its "
        "own communicator, in the function that was given it; Isend and Irecv go on meanwhile."
    )


def too_many_calls(limit: int, rank: int, name: str, lines: Lines) -> LabError:
    """A program that talks for ever."""
    return LabError(
        f"The ranks made {limit:,} calls and had not ended; the last was rank {rank}'s {name} "
        f"({lines.words(lines.here())}). Look for a loop that does not end."
    )


def out_of_time(deadline: float, late: BaseException | None, lines: Lines) -> LabError:
    """A program that takes too long."""
    where = lines.of_fault(late.__traceback__) if late else lines.words(lines.here())
    return LabError(
        f"The program had not ended after {deadline:g} s; it was at {where}. Look for a loop that "
        "does not end, or give run more time with deadline=."
    )


def different_dtypes(send: Post, receive: Post, lines: Lines) -> LabError:
    """The two ends of a message do not hold the same kind of number."""
    return _ends(send, receive, lines, lambda flat: f"{flat.dtype}", "Give both the same dtype.")


def too_long(send: Post, receive: Post, lines: Lines) -> LabError:
    """A message that does not fit."""
    return _ends(
        send,
        receive,
        lines,
        lambda flat: f"{flat.size:,} element{'' if flat.size == 1 else 's'}",
        "A message must not be longer than the buffer it is received into.",
    )


def memory_changed(post: Post, lines: Lines) -> LabError:
    """A program that wrote where a message was under way."""
    what = "sends" if post.sends else "receives into"
    return LabError(
        f"Rank {post.rank} changed what its {end_of_message(post, lines)} {what}, before it had "
        "waited for it. Until Wait is back the buffer belongs to the message: wait first, or use "
        "another array."
    )


def nothing_to_wait_for() -> LabError:
    """Waitany without requests."""
    return LabError("Waitany has no request that is still under way: all were waited for before.")


def _who(call: Entered) -> str:
    """`Rank 2's Send (line 7)`."""
    return f"Rank {call.rank}'s {call.name} ({call.lines.words(call.spot)})"


def same_memory(call: Entered) -> LabError:
    """A Sendrecv from and into one stretch of memory."""
    return LabError(
        f"{_who(call)} would receive into the memory that it sends. Receive into "
        "an array of its own, such as np.empty_like(chunk), and copy."
    )


def no_such_call(name: str) -> LabError:
    """A call of mpi4py that programs of this course do not use."""
    if name.capitalize() in ("Send", "Recv", "Sendrecv", "Isend", "Irecv", "Barrier"):
        advice = f"Use comm.{name.capitalize()}, which sends numpy arrays as they lie in memory"
    elif name.capitalize() in WHOLE:
        advice = f"Here you write it yourself, from {CALLS}; or take one of collectives.programs"
    else:
        advice = f"There are {CALLS}"
    return LabError(f"comm.{name} is no call of this communicator. {advice}.")


def no_such_request_call(name: str) -> LabError:
    """A request has few calls."""
    return LabError(f"A request has no {name}. There are Wait, Test, Waitall and Waitany.")


def wrong_rank(call: Entered, other: Any, ranks: int) -> LabError:
    """A message to or from nobody."""
    last = f"There are ranks 0 to {ranks - 1}" if ranks > 1 else "There is only rank 0"
    whole = "; divide with //" if isinstance(other, float) else ""
    return LabError(
        f"{_who(call)} names rank {other!r}. {last}: the neighbour of the last is "
        f"(rank + 1) % size{whole}."
    )


def wrong_tag(call: Entered, tag: Any) -> LabError:
    """A tag that MPI does not know."""
    return LabError(f"{_who(call)} has tag={tag!r}. A tag is a whole number from 0 on.")


def no_numbers(call: Entered, dtype: Any) -> LabError:
    """An array of objects or texts."""
    return LabError(
        f"{_who(call)} was given an array of {dtype}. Only numbers lie in memory as they "
        "are: give an array of numbers."
    )


def no_array(call: Entered, thing: Any) -> LabError:
    """Something that is not in one stretch of memory, such as a list."""
    return LabError(
        f"{_who(call)} needs a numpy array and was given "
        f"{'None' if thing is None else f'a {type(thing).__name__}'}. "
        "Give np.array(...); a single number is np.array([x])."
    )


def not_contiguous(call: Entered, array: np.ndarray) -> LabError:
    """An array with gaps."""
    return LabError(
        f"{_who(call)} was given an array of shape {array.shape} that is not in one "
        "stretch of memory, such as every second element or a column. Copy it first: "
        "np.ascontiguousarray(x)."
    )


def read_only(call: Entered) -> LabError:
    """A receive that could not write."""
    return LabError(
        f"{_who(call)} cannot write into this array: it is read-only, or a single "
        "number. Receive into an array of your own, such as np.empty_like(x)."
    )


def count_too_large(call: Entered, asked: int, there: int) -> LabError:
    """[array, count] with a count that the array does not have."""
    return LabError(f"{_who(call)} asks for {asked:,} elements of an array that has {there:,}.")


def _ends(send: Post, receive: Post, lines: Lines, words: Any, advice: str) -> LabError:
    return LabError(
        f"Rank {send.rank}'s {end_of_message(send, lines)} holds {words(send.flat)}, and rank "
        f"{receive.rank}'s {end_of_message(receive, lines)} holds {words(receive.flat)}. {advice}"
    )


def _tag_words(post: Post) -> str:
    return f" with tag {post.tag}" if post.tag > 0 else ""
