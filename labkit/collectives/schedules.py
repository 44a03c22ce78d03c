"""What a program costs on any number of ranks, from its structure: nothing is run.

>>> cost("ring_all_reduce", ranks=64, nbytes=1e6, latency=1e-6, bandwidth=100e9)
146 µs, modelled: 2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ; P = 64, S = 1.00 MB, α = 1.00 µs, \
100 GB/s between any two ranks
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives.events import play
from labkit.collectives.formulas import Formula, formula, options_of, whole_ranks
from labkit.collectives.pricing import model_of, wiring
from labkit.collectives.quantities import Seconds, is_number
from labkit.collectives.rounds import Round, Rounds, as_calls, duration, may_meet
from labkit.collectives.topologies import Topology
from labkit.collectives.two_tree_calls import two_tree_calls
from labkit.kinds import LabError, bytes_text, modelled

__all__ = ["SCHEDULES", "cost", "schedule"]

# Messages that are simulated one by one, on a ring once for each link; under half a minute.
MOST = 600_000


def cost(
    program: str | Callable[..., Any],
    ranks: int,
    nbytes: float,
    latency: float | None = None,
    bandwidth: float | None = None,
    reduction: float = 0.0,
    topology: Topology | None = None,
    **options: Any,
) -> Seconds:
    """Seconds that one of our programs takes on buffers of `nbytes`, all chunks even.

    On links that are all alike it is the closed form; on a topology it is simulated by structure,
    and equal to running the program and pricing the trace. `reduction` is in seconds per byte.
    """
    form = formula(program)
    settings = options_of(form, options)
    ranks = whole_ranks(ranks)
    if settings.get("root", 0) >= ranks:
        raise LabError(
            f"There is no root={settings['root']} among {ranks} ranks. Give a lower one."
        )
    if not is_number(nbytes) or not 0 <= nbytes < math.inf:
        raise LabError(f"nbytes={nbytes!r} is no size. Give the bytes of one rank's buffer.")
    wires = wiring(ranks, latency, bandwidth, topology)
    said = f"P = {ranks:,}, S = {bytes_text(nbytes)}, {model_of(wires, reduction)}"
    if topology is None and form.exact:
        numbers = form.terms(ranks, **settings)
        seconds = numbers.seconds(nbytes, wires.link.latency, wires.link.bandwidth, reduction)
        return Seconds(seconds, modelled(f"{form.text}; {said}"))
    seconds = _simulated(form, wires, nbytes, reduction, settings)
    return Seconds(seconds, modelled(f"{form.name} simulated by its structure; {said}"))


def _simulated(
    form: Formula, wires: Topology, nbytes: float, reduction: float, settings: dict[str, Any]
) -> float:
    if form.name == "double_binary_tree_all_reduce":
        pieces = settings.get("pieces", 4)
        _refuse_if_too_many(4 * pieces * (wires.ranks - 1), form.name)
        transfers, calls = two_tree_calls(wires.ranks, nbytes, pieces)
    else:
        rounds = schedule(form.name, wires.ranks, nbytes, **settings)
        if not may_meet(rounds, wires):
            return duration(rounds, wires, reduction)
        _refuse_if_too_many(_passages(rounds, wires), form.name)
        transfers, calls = as_calls(rounds, wires.ranks)
    return play(transfers, calls, wires, reduction, modelled("")).seconds


def _passages(rounds: Rounds, wires: Topology) -> int:
    """Messages, each as often as there are links on its way around a ring."""
    if wires.shape != "ring":
        return sum(len(one.src) * one.times for one in rounds())
    return sum(int(wires.hops(one.src, one.dst).sum()) * one.times for one in rounds())


def _refuse_if_too_many(passages: int, name: str) -> None:
    if passages > MOST:
        raise LabError(
            f"{name} sends messages over {passages:,} links here, which they share, and each "
            f"would be simulated; labkit does that up to {MOST:,}. Take fewer ranks, or links "
            "that no two ranks share."
        )


def schedule(
    program: str | Callable[..., Any], ranks: int, nbytes: float, **options: Any
) -> Rounds:
    """The rounds of a program; called, they come one after the other, as often as wanted."""
    form = formula(program)
    if form.name not in SCHEDULES:
        raise LabError(f"{form.name} does not wait after each message, so it has no rounds.")
    return partial(SCHEDULES[form.name], ranks, nbytes, **options_of(form, options))


def _powers(below: int) -> list[int]:
    return [1 << bit for bit in range((below - 1).bit_length())]


def _circle(ranks: int, nbytes: float, added: bool) -> Iterator[Round]:
    """Every chunk one rank further, until it has been everywhere."""
    if ranks > 1:
        here = np.arange(ranks)
        yield Round(here, (here + 1) % ranks, nbytes / ranks, added, ranks - 1)


def _ring(ranks: int, nbytes: float) -> Iterator[Round]:
    yield from _circle(ranks, nbytes, added=True)
    yield from _circle(ranks, nbytes, added=False)


def _distances(
    ranks: int, nbytes: float, added: bool = False, back: bool = False
) -> Iterator[Round]:
    """A chunk for the rank at distance 1, then for the one at distance 2, and so on."""
    here = np.arange(ranks)
    for distance in range(1, ranks):
        there = (here - distance if back else here + distance) % ranks
        yield Round(here, there, nbytes / ranks, added)


def _server(ranks: int, nbytes: float) -> Iterator[Round]:
    yield from _distances(ranks, nbytes, added=True)
    yield from _distances(ranks, nbytes)


def _star(
    ranks: int, nbytes: float, root: int = 0, inward: bool = False, added: bool = False
) -> Iterator[Round]:
    """The root and one other rank after the other."""
    middle = np.array([root])
    for other in range(ranks):
        if other != root:
            ends = (np.array([other]), middle) if inward else (middle, np.array([other]))
            yield Round(*ends, nbytes, added)


def _star_of_chunks(
    ranks: int, nbytes: float, root: int = 0, inward: bool = False
) -> Iterator[Round]:
    yield from _star(ranks, nbytes / ranks, root, inward)


def _naive(ranks: int, nbytes: float) -> Iterator[Round]:
    yield from _star(ranks, nbytes, inward=True, added=True)
    yield from _star(ranks, nbytes)


def _tree_down(ranks: int, nbytes: float, root: int = 0) -> Iterator[Round]:
    for have in _powers(ranks):
        places = np.arange(min(have, ranks - have))
        yield Round((places + root) % ranks, (places + have + root) % ranks, nbytes)


def _tree_up(ranks: int, nbytes: float, root: int = 0) -> Iterator[Round]:
    for left in reversed(_powers(ranks)):
        places = np.arange(min(left, ranks - left))
        yield Round((places + left + root) % ranks, (places + root) % ranks, nbytes, added=True)


def _tree(ranks: int, nbytes: float) -> Iterator[Round]:
    yield from _tree_up(ranks, nbytes)
    yield from _tree_down(ranks, nbytes)


def _barrier(ranks: int, nbytes: float) -> Iterator[Round]:
    here = np.arange(ranks)
    for distance in _powers(ranks):
        yield Round(here, (here + distance) % ranks, 0.0)


def _folded(
    ranks: int, core: int, nbytes: float, inner: Callable[[], Iterator[Round]]
) -> Iterator[Round]:
    """The ranks beyond the core hand their data in first and get the total at the end."""
    extra = np.arange(ranks - core)
    yield Round(extra + core, extra, nbytes, added=True)
    yield from inner()
    yield Round(extra, extra + core, nbytes)


def _core(ranks: int) -> int:
    return int(1 << (ranks.bit_length() - 1))


def _doubling(ranks: int, nbytes: float) -> Iterator[Round]:
    core = _core(ranks)
    here = np.arange(core)

    def inner() -> Iterator[Round]:
        for distance in _powers(core):
            yield Round(here, here ^ distance, nbytes, added=True)

    return _folded(ranks, core, nbytes, inner)


def _rabenseifner(ranks: int, nbytes: float) -> Iterator[Round]:
    core = _core(ranks)
    here = np.arange(core)

    def inner() -> Iterator[Round]:
        for distance in reversed(_powers(core)):
            yield Round(here, here ^ distance, nbytes * distance / core, added=True)
        for distance in _powers(core):
            yield Round(here, here ^ distance, nbytes * distance / core)

    return _folded(ranks, core, nbytes, inner)


def _two_levels(ranks: int, nbytes: float, per_node: int = 2) -> Iterator[Round]:
    per_node = min(per_node, ranks)
    core = ranks - ranks % per_node
    here, nodes = np.arange(core), core // per_node
    first = here - here % per_node
    beside = first + (here - first + 1) % per_node
    chunk = nbytes / per_node

    def inner() -> Iterator[Round]:
        if per_node > 1:
            yield Round(here, beside, chunk, True, per_node - 1)
        if nodes > 1:
            yield Round(here, (here + per_node) % core, chunk / nodes, True, nodes - 1)
            yield Round(here, (here + per_node) % core, chunk / nodes, False, nodes - 1)
        if per_node > 1:
            yield Round(here, beside, chunk, False, per_node - 1)

    return _folded(ranks, core, nbytes, inner)


SCHEDULES: dict[str, Callable[..., Iterator[Round]]] = {
    "broadcast": _tree_down,
    "naive_broadcast": _star,
    "reduce": _tree_up,
    "scatter": _star_of_chunks,
    "gather": partial(_star_of_chunks, inward=True),
    "all_gather": partial(_circle, added=False),
    "reduce_scatter": partial(_circle, added=True),
    "all_to_all": _distances,
    "barrier": _barrier,
    "naive_all_reduce": _naive,
    "parameter_server_all_reduce": _server,
    "tree_all_reduce": _tree,
    "recursive_doubling_all_reduce": _doubling,
    "rabenseifner_all_reduce": _rabenseifner,
    "ring_all_reduce": _ring,
    "hierarchical_all_reduce": _two_levels,
}
