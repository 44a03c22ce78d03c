"""Judges of what was measured on hosts with links: the seconds of programs, and bytes per link.

Bytes are counted by the kernel. Seconds are compared in rounds, in which each program runs once:
what else the machine does meets all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from statistics import median
from typing import Any

from labkit.cluster import Cluster, communicator
from labkit.cluster.links.network import bits
from labkit.cluster.links.traffic import Traffic
from labkit.exercises.judges.answers import beside, judged
from labkit.exercises.judges.program import BLOCKS, program
from labkit.exercises.task import NotJudged, Wrong
from labkit.kinds import LabError, bytes_text, measured, seconds_text
from labkit.plain import typed
from labkit.timing.estimate import Estimate
from labkit.timing.intervals import shift

ROUNDS = 5
TIME_LIMIT = 10.0  # seconds for one run of a program; those of tasks take one or two
ELEMENTS = 125_001  # of 8 bytes, on each of four hosts
HEADERS = 1.15  # bytes that the kernel counts over those of the arrays, at most
NO_LINKS = (
    "It is judged by what is measured over links, which cannot be had here: labkit doctor says "
    "why. The lecture shows what was recorded."
)


@dataclass
class LinkMeasurement:
    """What a program left on each rank, its seconds by round, and the traffic of its first run."""

    results: list[Any]
    traffic: Traffic
    seconds: list[float] = field(default_factory=list)
    """Of the slowest rank."""


def over_links(
    programs: Mapping[str, Callable[..., Any]],
    arguments: Sequence[Any],
    *,
    answer: Any = None,
    rounds: int = ROUNDS,
    **cluster: Any,
) -> dict[str, LinkMeasurement]:
    """Run program(comm, argument) of each name on hosts with links: an argument for each rank.

    `answer` is what a student has written of it.
    """
    record = beside(answer, _measured, dict(programs), list(arguments), rounds, cluster)
    return {
        name: LinkMeasurement(results, typed(Traffic, traffic), seconds)
        for name, (results, traffic, seconds) in record.items()
    }


def _measured(
    _: Any, programs: Mapping[str, Any], arguments: list[Any], rounds: int, cluster: dict[str, Any]
) -> dict[str, Any]:
    found: dict[str, LinkMeasurement] = {}
    with Cluster(len(arguments), **cluster) as c:
        if not c.has_links:
            raise NotJudged(NO_LINKS)
        for _ in range(rounds):
            for name, program in programs.items():
                ends = _run(c, program, list(arguments))
                if name not in found:
                    found[name] = LinkMeasurement([result for result, _ in ends], c.traffic())
                found[name].seconds.append(max(seconds for _, seconds in ends))
    return {name: (one.results, asdict(one.traffic), one.seconds) for name, one in found.items()}


def _run(c: Cluster, program: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
    try:
        return c.run(_timed, program, arguments, timeout=TIME_LIMIT, show=False)
    except LabError as fault:
        text = str(fault).replace(f"{_timed.__name__} had not", "It had not")
        raise Wrong(text.replace("Give it more time with timeout=, or look", "Look")) from None


def ratio(slower: LinkMeasurement, faster: LinkMeasurement) -> Estimate:
    """How many times as long one takes as the other, with an interval over the rounds."""
    quotients = [one / other for one, other in zip(slower.seconds, faster.seconds, strict=True)]
    found = shift(quotients, 0.9)
    kind = measured(f"this machine, {faster.traffic.network}")
    return Estimate(found.value, found.low, found.high, "×", found.confidence, kind)


def all_reduce_over_links(
    told: Callable[..., None], beside: str, least: float, **cluster: Any
) -> Callable[[Any], Any]:
    """The judge of an all-reduce on four hosts, measured beside one of labkit's.

    The other program must take at least `least` times as long, measured, or on a busy machine by
    the model of these links.
    """
    prove = program("all_reduce", ranks=(4,), may_call=(*BLOCKS, "all_reduce"), shown=4)

    def measure(answer: Any) -> Any:
        import numpy as np

        from labkit.collectives import programs

        trace = prove(answer)
        random = np.random.default_rng(1)  # whole numbers: every order gives the same sum
        arrays = list(random.integers(0, 2**40, (4, ELEMENTS)).astype(float))
        both = {"yours": answer, "other": getattr(programs, beside)}
        yours, other = over_links(both, arrays, answer=answer, **cluster).values()
        picture = yours.traffic.picture()
        for rank, result in enumerate(yours.results):
            if not np.array_equal(result, sum(arrays)):
                text = f"Over links, rank {rank} does not hold the sum of {ELEMENTS:,} elements."
                raise Wrong(text, picture)
        gain = ratio(other, yours)
        mine, its = (seconds_text(median(one.seconds)) for one in (yours, other))
        times = f"it takes {mine} and {beside} {its}, measured: {gain}"
        # `labkit grade` has these seconds from the answer's own process, and believes none of them.
        unsure = gain.high < least or hasattr(answer, "_beside")
        expected = _modelled_ratio(trace, beside, cluster) if unsure else least
        at, count = _fullest(yours.traffic, "rack" if "racks" in cluster else "host")
        told(
            picture,
            before="The sum is right. But ",
            carried=f"the link of {at} carried {bytes_text(count)} in one direction",
            arrays=count / arrays[0].nbytes,
            times=times,
            too_slow=expected < least,
        )
        if unsure:
            times += f". Other programs use this machine: the links allow {expected:.1f}×, modelled"
        print(f"Over links {times}.")
        return picture

    return judged(measure)


def _modelled_ratio(trace: Any, beside: str, cluster: Mapping[str, Any]) -> float:
    """How many times as long `beside` takes as the traced program, on these links alone."""
    from labkit.collectives import programs, run, topology

    link, uplink = (
        topology.Link(1e-9, bits(cluster.get(name, cluster["link"])) / 8)
        for name in ("link", "uplink")
    )
    racks = cluster.get("racks", 1)
    links = topology.nodes(racks, trace.ranks // racks, inside=link, between=uplink)
    other = run(getattr(programs, beside), list(trace.inputs))
    return float(other.cost(topology=links)) / float(trace.cost(topology=links))


def _fullest(traffic: Traffic, kind: str) -> tuple[str, int]:
    """The "host" or "rack" whose link carried most in one direction, and these bytes."""
    names = [name for name in traffic.sent if name.startswith(kind)]
    return max(((name, max(traffic.bytes(name))) for name in names), key=itemgetter(1))


def _timed(rank: int, program: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, float]:
    """On a rank: what the program returns, or leaves in its argument, and its seconds."""
    comm, argument = communicator(), arguments[rank]
    comm.Barrier()
    began = time.perf_counter()
    result = program(comm, argument)
    return argument if result is None else result, time.perf_counter() - began
