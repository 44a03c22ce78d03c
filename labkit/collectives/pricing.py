"""When each message of a trace would start and end on given links: event by event, α-β-γ.

>>> from labkit.collectives import programs, run                                # doctest: +SKIP
>>> timed(run(programs.ring_all_reduce, ranks=4), latency=5e-6, bandwidth=10e9)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.collectives.events import Post, Timed, Transfer, play
from labkit.collectives.quantities import is_number
from labkit.collectives.topologies import Topology, fully_connected
from labkit.kinds import LabError, bytes_text, modelled, seconds_text

if TYPE_CHECKING:
    from labkit.collectives.trace import Trace

__all__ = ["Timed", "model_of", "timed", "wiring"]


def timed(
    trace: Trace,
    latency: float | None = None,
    bandwidth: float | None = None,
    reduction: float = 0.0,
    topology: Topology | None = None,
) -> Timed:
    """The trace on links of `latency` seconds and `bandwidth` bytes per second, or on a topology.

    A message starts when both ends have posted it and the sender's sending port, the receiver's
    receiving port and every link on its way are free; first come, first served. It lasts the
    latencies of its links plus its bytes over the narrowest; a link is taken for its own share of
    that. Bytes that came into scratch memory, and must be added in, cost `reduction` seconds each
    when the call that waited for them returns. Nothing else costs time: not a copy, and not the
    division at the end of a mean.
    """
    wires = wiring(trace.ranks, latency, bandwidth, topology)
    calls: list[list[Post]] = [[] for _ in range(trace.ranks)]
    for call in trace.calls:
        calls[call.rank].append(Post(call.number, call.begins, call.awaits, call.barrier))
    place = {message.number: i for i, message in enumerate(trace.messages)}
    transfers = [
        Transfer(m.source, m.dest, m.nbytes, m.into is None, m.sent_by, m.received_by)
        for m in trace.messages
    ]
    if any(place[number] != number for number in place):
        calls = [
            [
                call._replace(
                    begins=tuple(place[m] for m in call.begins),
                    awaits=tuple(place[m] for m in call.awaits),
                )
                for call in of_rank
            ]
            for of_rank in calls
        ]
    kind = modelled(model_of(wires, reduction))
    return play(transfers, calls, wires, reduction, kind)


def wiring(
    ranks: int, latency: float | None, bandwidth: float | None, topology: Topology | None
) -> Topology:
    """The topology that somebody asked for, in one of the two ways."""
    if topology is None:
        if latency is None or bandwidth is None:
            raise LabError(
                "A cost needs links. Give latency= in seconds and bandwidth= in bytes per second, "
                "or a topology=."
            )
        return fully_connected(ranks, latency, bandwidth)
    if latency is not None or bandwidth is not None:
        raise LabError(
            "A topology has latencies and bandwidths of its own. "
            "Leave out latency= and bandwidth=, or topology=."
        )
    if not isinstance(topology, Topology):
        raise LabError(
            f"topology={topology!r} is no topology. Make one with collectives.topologies, such as "
            "topologies.ring(8, latency=1e-6, bandwidth=100e9)."
        )
    if topology.ranks != ranks:
        raise LabError(
            f"The topology has {topology.ranks} ranks and the program {ranks}. "
            f"Make a topology of {ranks} ranks."
        )
    return topology


def model_of(wires: Topology, reduction: float) -> str:
    """The words behind "modelled:" for a time on these links."""
    if not (is_number(reduction) and 0 <= reduction < float("inf")):
        raise LabError(
            f"reduction={reduction!r} is no time. Give seconds per byte, such as 1e-11, or 0."
        )
    if wires.shape == "all" and not wires.slow and not wires.stragglers:
        said = f"α = {seconds_text(wires.link.latency)}"
        said += f", {bytes_text(wires.link.bandwidth)}/s between any two ranks"
    else:
        said = str(wires)
    if reduction:
        said += f", γ = {seconds_text(1e9 * reduction)}/GB"
    return said
