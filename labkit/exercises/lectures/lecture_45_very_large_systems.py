"""What answers of lecture 45 are judged by: very large systems."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from labkit.kinds import bytes_text

if TYPE_CHECKING:
    from labkit.collectives import Trace

PER_NODE = 4


def out_of_nodes(trace: Trace) -> str:
    """On nodes of four: the bytes that leave a node, in all and from each of its ranks."""
    out = [0] * trace.ranks
    for one in trace.messages:
        out[one.source] += one.nbytes * (one.source // PER_NODE != one.dest // PER_NODE)
    nodes = [sum(out[first : first + PER_NODE]) for first in range(0, trace.ranks, PER_NODE)]
    chunk = ceil(ceil(trace.inputs[0].size / PER_NODE) / len(nodes)) * trace.inputs[0].itemsize
    enough = 2 * (len(nodes) - 1) * PER_NODE * chunk
    if max(nodes) > enough:
        return (
            f"{bytes_text(max(nodes))} leave node {nodes.index(max(nodes))}; {bytes_text(enough)} "
            "are enough. Add up inside each node first; between nodes take a ring."
        )
    if max(out) > enough / PER_NODE:
        return (
            f"rank {out.index(max(out))} alone sends {bytes_text(max(out))} to other nodes. Let "
            f"each of the four ranks send a quarter ({bytes_text(enough / PER_NODE)}), over a "
            "network card of its own."
        )
    return ""
