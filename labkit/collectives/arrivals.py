"""Whether a barrier holds: no rank may leave before every rank has arrived."""

from __future__ import annotations

from collections import defaultdict

from labkit.collectives.trace import Call, Trace

__all__ = ["unheard"]


def unheard(trace: Trace) -> list[tuple[int, list[int]]]:
    """Ranks that can leave early, each with the ranks that it has not heard of.

    A message tells its receiver what its sender knew when it was sent. It tells the sender
    nothing: MPI may put a small message away and let the sender go on.
    """
    posted = _known_when_posted(trace)
    knows = [1 << rank for rank in range(trace.ranks)]  # a bit for each rank that has arrived
    members: dict[int, list[Call]] = defaultdict(list)
    for call in trace.calls:
        if call.barrier is not None:
            members[call.barrier].append(call)
    before: dict[int, int] = {}
    for call in trace.calls:
        # Calls are in the order in which they came back: whoever sent has been here before.
        heard = knows[call.rank]
        sources = [trace.messages[number] for number in call.awaits]
        for message in sources:
            if message.dest == call.rank:
                heard |= before.get(posted[message.sent_by], 1 << message.source)
        if call.barrier is not None:
            for member in members[call.barrier]:
                heard |= before.get(posted[member.number], 1 << member.rank)
        before[call.number] = knows[call.rank] = heard
    everybody = range(trace.ranks)
    missing = [[other for other in everybody if not heard >> other & 1] for heard in knows]
    return [(rank, others) for rank, others in enumerate(missing) if others]


def _known_when_posted(trace: Trace) -> dict[int, int]:
    """For each call the call of the same rank before it, or -1: what was known at its beginning."""
    latest = [-1] * trace.ranks
    earlier = {}
    for call in trace.calls:
        earlier[call.number] = latest[call.rank]
        latest[call.rank] = call.number
    return earlier
