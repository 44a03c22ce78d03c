"""Why nobody can go on: the ring of ranks that wait for one another, or a rank that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.collectives.faults import end_of_message
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.collectives.posts import Entered, Post
    from labkit.collectives.simulator import Simulator

__all__ = ["deadlock"]

NAMED = 4  # ranks of a ring that are named one by one


def deadlock(run: Simulator) -> LabError:
    """The sentence for a run in which every rank that has not ended waits."""
    chain = _chain(run)
    said = [f"rank {rank} waits {_what(run, rank, other)}" for rank, other in chain]
    if len(said) > NAMED + 1:
        said = [*said[: NAMED - 1], f"and so on for {len(said) - NAMED:,} more ranks", said[-1]]
    last, other = chain[-1]
    end = _nobody(run, last, other)
    return LabError(f"Deadlock: {', '.join(said)}{end}. {_advice(run, chain, other)}")


def _chain(run: Simulator) -> list[tuple[int, int | None]]:
    """Ranks, each with the one it waits for: a ring, or the last that waits in vain."""
    best: list[tuple[int, int | None]] = []
    for first in range(run.ranks):
        if run.waiting[first] is None:
            continue
        chain = _from(run, first)
        closed = chain[-1][1] == chain[0][0]
        if closed:
            return chain
        best = best or chain
    return best[-1:]  # what leads to the last only waits for it


def _from(run: Simulator, first: int) -> list[tuple[int, int | None]]:
    chain: list[tuple[int, int | None]] = []
    seen: set[int] = set()
    rank: int | None = first
    while rank is not None and rank not in seen and run.waiting[rank] is not None:
        seen.add(rank)
        other = _waits_for(run, rank)
        chain.append((rank, other))
        rank = other
    return chain


def _open(run: Simulator, rank: int) -> tuple[Entered, list[Post]]:
    waiting = run.waiting[rank]
    assert waiting is not None
    call, posts = waiting
    return call, [post for post in posts if not post.is_done]


def _waits_for(run: Simulator, rank: int) -> int | None:
    """One rank that this one cannot go on without; an ended one first, as nobody can help it."""
    call, posts = _open(run, rank)
    if call.barrier is not None:
        others = [other for other in range(run.ranks) if not _at(run, other, call.barrier)]
    elif any(post.peer < 0 for post in posts):
        others = [other for other in range(run.ranks) if other != rank and not run.ended[other]]
    else:
        others = [post.peer for post in posts]
    ended = [other for other in others if run.ended[other]]
    return next(iter(ended or others), None)


def _at(run: Simulator, rank: int, barrier: int) -> bool:
    waiting = run.waiting[rank]
    return waiting is not None and waiting[0].barrier == barrier


def _what(run: Simulator, rank: int, other: int | None) -> str:
    call, posts = _open(run, rank)
    line = run.lines.words(call.spot)
    if call.barrier is not None:
        return f"in Barrier for rank {other} ({line})"
    post = next((post for post in posts if post.peer == other), posts[0])
    if post.call is call:
        return f"in {end_of_message(post, run.lines)}"
    return f"in {call.name} ({line}) for its {end_of_message(post, run.lines)}"


def _nobody(run: Simulator, rank: int, other: int | None) -> str:
    """What to add when the chain does not close."""
    if other is None:
        return ", and all other ranks have ended"
    return f", and rank {other} has ended" if run.ended[other] else ""


def _advice(run: Simulator, chain: list[tuple[int, int | None]], last: int | None) -> str:
    tags = _other_tag(run, [rank for rank, _ in chain])
    if tags:
        return tags
    names = {_end(run, rank, other) for rank, other in chain}
    if "barrier" in names:
        return "Every rank has to come to every Barrier, with its messages done before."
    if last is None or run.ended[last]:
        return "Every receive needs a send, and every send a receive."
    if len(chain) == 1:
        return "A rank need not send to itself: copy, or use Sendrecv."
    if names == {"sends"}:
        return (
            "Every Send waits for its receiver (MPI's own may not, for small messages only): let "
            "one of the ranks receive first, or use Sendrecv."
        )
    if names == {"receives"}:
        return "Each waits for what another sends only afterwards: let one of the ranks send first."
    return "Let the ranks call in an order in which each send meets its receive."


def _end(run: Simulator, rank: int, other: int | None) -> str:
    call, posts = _open(run, rank)
    if call.barrier is not None:
        return "barrier"
    post = next((post for post in posts if post.peer == other), posts[0])
    return "sends" if post.sends else "receives"


def _other_tag(run: Simulator, ranks: list[int]) -> str:
    """A message that is there, and which its receiver does not take for its tag."""
    for rank in ranks:
        for wanted in run.mail.wanted[rank]:
            for offered in run.mail.offered[rank]:
                if wanted.peer == offered.rank or wanted.peer < 0:
                    return (
                        f"Rank {offered.rank} offers rank {rank} a message with tag {offered.tag}, "
                        f"and rank {rank} takes only one with tag {wanted.tag}: give both the "
                        "same tag."
                    )
    return ""
