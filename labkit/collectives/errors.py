"""What a run that cannot go on says: which ranks, which calls, which lines, and what to do."""

from collections.abc import Sequence
from traceback import TracebackException
from typing import NamedTuple

from labkit.collectives.messages import (
    ANY_SOURCE,
    LIBRARY_TAG,
    End,
    Lines,
    Mailboxes,
    Meeting,
    OpenCall,
    ranks_text,
)
from labkit.kinds import counted

NAMED = 4  # ranks of a ring that are named one by one


def unlike_ends(send: End, receive: End) -> str | None:
    """Returns why a receiver cannot hold a message, or None."""
    sent, into = send.held, receive.memory
    assert sent is not None
    assert into is not None
    if sent.dtype != into.dtype and sent.size:
        holds = ["an object" if one.dtype == "V1" else str(one.dtype) for one in (sent, into)]
        advice = "Give both the same dtype."
        if send.call.name == "send":
            advice = "Recv goes with Send, and recv with send."
    elif sent.size > into.size or (send.tag == LIBRARY_TAG and sent.size < into.size):
        holds = [counted(sent.size, "element"), counted(into.size, "element")]
        advice = "A message must not be longer than the buffer it is received into."
        if send.tag == LIBRARY_TAG:
            advice = "In a collective both must be equal: give all ranks the same counts."
    else:
        return None
    return (
        f"Rank {send.rank}'s {send.words} holds {holds[0]}, and rank {receive.rank}'s "
        f"{receive.words} holds {holds[1]}. {advice}"
    )


def unlike_calls(meeting: Meeting) -> str | None:
    """Returns how two collective calls that meet differ, or None."""
    one, other = meeting.calls[0], meeting.calls[-1]
    if one.name != other.name:
        return (
            f"{one.words} meets {other.words.replace('R', 'r', 1)}. All ranks of a communicator "
            "must make the same collective calls, in the same order."
        )
    (root, _), (its, _) = meeting.given[one.rank], meeting.given[other.rank]
    if one.name == "Split" or root == its:
        return None
    theirs = other.words.replace("R", "r", 1)
    return f"{one.words} has root={root}, and {theirs} has root={its}. Give all the same root."


def not_waited(end: End, did: str) -> str:
    """A program that wrote into memory that a message was using, or read what it received."""
    return (
        f"Rank {end.rank} {did} what its {end.words} {'sends' if end.sends else 'receives into'}, "
        "before it had waited for it. Until Wait is back the buffer belongs to the message: wait "
        "first, or use another array."
    )


def left_over(mail: Mailboxes, calls: Sequence[OpenCall]) -> str | None:
    """Returns which message has not arrived, or which request was not waited for, or None."""
    for end in (end for ends in mail.offered + mail.wanted for end in ends):
        what = f"rank {end.rank}'s {end.words}{f' with tag {end.tag}' if end.tag > 0 else ''}"
        if end.sends:
            what = f"Rank {end.peer} never receives the message of {what}."
        else:
            what = f"No message ever comes for {what}."
        return f"{what} Every message needs its receive, and every receive its message."
    for end in (end for call in calls for end in call.posts if end.late and not end.waited):
        return (
            f"Rank {end.rank} never waits for its {end.words}. "
            f"Keep the request that {end.call.name} gives back, and call its Wait()."
        )
    return None


def rank_raised(rank: int, fault: BaseException, lines: Lines) -> str:
    """Returns a rank's own exception in words, with its line."""
    words = str(TracebackException.from_exception(fault))  # also where its own __str__ fails
    text = f": {words}" if words else ""
    where = lines.of_exception(fault.__traceback__) or "a line that cannot be read"
    return f"Rank {rank} raised {type(fault).__name__}{text} ({where})."


class Wait(NamedTuple):
    """A call that waits, the end of a message (None: of all ranks), a rank that it waits for."""

    call: OpenCall
    end: End | None
    rank: int | None

    @property
    def words(self) -> str:
        """`rank 0 waits in Send to rank 1 (line 7)`."""
        call, end = self.call, self.end
        if (meeting := call.meeting) is not None:
            missing = [rank for rank in call.context.ranks if rank not in meeting.given]
            who, waits = ranks_text(sorted(meeting.given)), "wait" + "s" * (len(meeting.given) == 1)
            return f"{who} {waits} in {call.name} for {ranks_text(missing)}{call.where}"
        assert end is not None
        what = end.words if end.call is call else f"{call.name}{call.where} for its {end.words}"
        return f"rank {call.rank} waits in {what}"


def deadlock(waiting: Sequence[OpenCall | None], mail: Mailboxes) -> str:
    """Returns which ranks wait for one another, or which one waits for a rank that has ended.

    `waiting` holds the call in which each rank waits; None is a rank that has ended.
    """
    rank: int | None = next(rank for rank, call in enumerate(waiting) if call)
    waits: dict[int, Wait] = {}
    while rank is not None and rank not in waits and (call := waiting[rank]):
        waits[rank] = _wait(call, waiting)
        rank = waits[rank].rank
    chain = list(waits.values())[list(waits).index(rank) if rank in waits else -1 :]
    parts = [one.words for one in chain]
    if len(parts) > NAMED + 1:
        more = f"and so on for {len(parts) - NAMED:,} more ranks"
        parts = [*parts[: NAMED - 1], more, parts[-1]]
    if rank not in waits:
        all_ended = "all other ranks of the communicator have ended"
        parts[-1] += f", and {all_ended if rank is None else f'rank {rank} has ended'}"
    advice = _unlike_ends(chain, mail) or _advice(chain, ended=rank not in waits)
    return f"Deadlock: {', '.join(parts)}. {advice}"


def _wait(call: OpenCall, waiting: Sequence[OpenCall | None]) -> Wait:
    """Returns what a call waits for: a rank that has ended before all others."""
    ends = [end for end in call.pending if not end.is_done]
    others = [end.peer for end in ends]
    if call.meeting is not None:
        others = [rank for rank in call.context.ranks if rank not in call.meeting.given]
    elif ANY_SOURCE in others:
        members = {rank for end in ends for rank in end.call.context.ranks} - {call.rank}
        others = [one.rank for one in waiting if one and one.rank in members]
    rank = next((one for one in others if waiting[one] is None), next(iter(others), None))
    end = next((one for one in ends if one.peer == rank), next(iter(ends), None))
    return Wait(call, end, rank)


def _unlike_ends(chain: Sequence[Wait], mail: Mailboxes) -> str | None:
    for wanted in (end for one in chain for end in mail.wanted[one.call.rank]):
        for offered in mail.offered[wanted.rank]:
            same = offered.call.context is wanted.call.context
            if same and wanted.peer in (offered.rank, ANY_SOURCE):
                return (
                    f"Rank {offered.rank} offers rank {wanted.rank} a message with tag "
                    f"{offered.tag}, and rank {wanted.rank} takes only one with tag {wanted.tag}: "
                    "give both the same tag."
                )
    return None


def _advice(chain: Sequence[Wait], *, ended: bool) -> str:
    ways = {one.end and one.end.sends for one in chain}
    if None in ways:
        name = next(one.call.name for one in chain if one.end is None)
        return f"Every rank of a communicator has to come to its {name}, with its messages done."
    if ended:
        return "Every receive needs a send, and every send a receive."
    if len(chain) == 1:
        return "A rank that waits for its own message waits for ever: it has its own data already."
    if ways == {True}:
        return (
            "Every Send waits for its receiver (MPI's own may not, for small messages only): let "
            "one of the ranks receive first, or use Sendrecv."
        )
    if ways == {False}:
        return "Each waits for what another sends only afterwards: let one of the ranks send first."
    return "Let the ranks call in an order in which each send meets its receive."
