"""The timeline of a pipeline: as a figure, and as a page to step through without a kernel."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from labkit.kinds import Kind, modelled
from labkit.views.embed import Player, embedded, gzipped
from labkit.views.figure import Picture
from labkit.views.timeline import Bar, Lanes, State

MODULES = ("page", "drawing", "ticks", "controls", "schedules", "pipeline")
KINDS = {"F": ("F: forward", 0), "B": ("B: backward", 1), "W": ("W: gradient of the weights", 2)}


def figure(timelines: Sequence[Any]) -> Picture:
    """One below the other on one time axis, each with its title where there are several."""
    drawn = lanes(timelines)
    what = " ".join(repr(one).replace("\n", "; ") for one in timelines)
    return drawn.board.picture(f"Timeline of {what} {drawn.words()}")


def lanes(timelines: Sequence[Any], title: str = "") -> Lanes:
    """The board of the figure."""
    chunks = max(one.schedule.chunks for one in timelines)
    names: list[str] = []
    bars: list[Bar] = []
    kinds = {one.kind.name for one in timelines}
    for one in timelines:
        if len(timelines) > 1:
            names.append(one.schedule.name + (f", {one.kind.name}" if len(kinds) > 1 else ""))
        for rank, peak in enumerate(one.peak_activations):
            bars.append(Bar(len(names), "waits", 0.0, one.total))
            bars += _pieces(one, rank, len(names))
            names.append(f"rank {rank}, holds {peak:.3g}")
    sizes = {one.schedule.title.removeprefix(one.schedule.name) for one in timelines}
    several = f"Pipelines{sizes.pop() if len(sizes) == 1 else ''}"
    about = "A rank “holds” the activations of so many micro-batches at most."
    about += " Chunk 0 is above, the next ones below it." if chunks > 1 else ""
    return Lanes(
        title or (timelines[0].schedule.title if len(timelines) == 1 else several), about, bars,
        _states(chunks), names, _kind(timelines), unit="" if "measured" in kinds else "time units",
    )  # fmt: skip


def _kind(timelines: Sequence[Any]) -> Kind:
    """Of all of them; where some are modelled, that is said beside the others'."""
    kinds: list[Kind] = sorted({one.kind for one in timelines}, key=lambda kind: kind.name)
    if len(kinds) == 1:
        return kinds[0]
    if kinds[0].name == "modelled":
        return modelled(kinds[0].source.partition(";")[0])  # without the times
    return Kind(kinds[0].name, f"{kinds[0].source}; the others are modelled")


def _pieces(timeline: Any, rank: int, lane: int) -> list[Bar]:
    found = []
    times = zip(timeline.starts[rank], timeline.ends[rank], strict=True)
    for (kind, m, *chunk), (start, end) in zip(timeline.schedule.rows[rank], times, strict=True):
        state = f"{kind} of chunk {chunk[0]}" if chunk and chunk[0] else kind
        found.append(Bar(lane, state, start, end, (f"{kind}{m}", f"{m}")))
    return found


def _states(chunks: int) -> dict[str, State]:
    """Of several chunks each has a part of the lane's height."""
    high = 0.72 / chunks
    states = {"waits": State("waits (bubble)", None)}
    for kind, (name, series) in KINDS.items():
        states[kind] = State(name, series, 0.08, high, margin=3)
        for chunk in range(1, chunks):
            top = 0.08 + chunk * high
            states[f"{kind} of chunk {chunk}"] = State("", series, top, high, margin=3)
    return states


def player(timeline: Any) -> Player:
    """The timeline piece by piece, by buttons and keys."""
    still = cache(timeline.figure)

    def html() -> str:
        data = gzipped(json.dumps(content(timeline), separators=(",", ":")))
        alt, png, key = still().alt, still().png, data[-16:]
        return embedded("pipeline", MODULES, {"alt": alt, "data": data}, key=key, alt=alt, png=png)

    return Player(timeline.schedule.title, still().alt, still, html)


def content(timeline: Any) -> dict[str, Any]:
    """What the page shows: of each piece [kind, micro-batch, chunk, stage, start, end].

    `choice` says from where it can go on to other schedules and sizes.
    """
    schedule = timeline.schedule
    first = min(row[0] for row in timeline.starts)
    stages = [{at: stage for stage, at in enumerate(path)} for path in schedule.paths]
    return {
        "title": schedule.title,
        "kind": str(timeline.kind),
        "unit": " s" if timeline.kind.name == "measured" else "",
        "chunks": schedule.chunks,
        "parts": schedule.parts,
        "weights": schedule.has_weights,
        "choice": {
            "name": schedule.name.partition(",")[0], "stages": schedule.stages,
            "microbatches": schedule.microbatches, "times": timeline.times,
        },
        "rows": [
            [(*(*piece, 0)[:3], stages[piece[1] % len(stages)][rank, (*piece, 0)[2]],
              round(a - first, 9), round(b - first, 9))
             for piece, a, b in zip(row, starts, ends, strict=True)]
            for rank, (row, starts, ends) in enumerate(
                zip(schedule.rows, timeline.starts, timeline.ends, strict=True))
        ],
    }  # fmt: skip
