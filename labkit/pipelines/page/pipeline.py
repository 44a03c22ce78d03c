"""The timeline of a pipeline: as a figure, and as a page to step through without a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from labkit.kinds import Kind, modelled
from labkit.pipelines.rows import chunk_of
from labkit.views.embed import Player, packed
from labkit.views.figure import Picture
from labkit.views.lanes import Bar, BarStyle, Lanes

if TYPE_CHECKING:
    from labkit.pipelines.timeline import Timeline

KINDS = {"F": ("F: forward", 0), "B": ("B: backward", 1), "W": ("W: gradient of the weights", 2)}


def picture(timelines: Sequence[Timeline]) -> Picture:
    """Returns a picture of timelines on one time axis, each with its title if there are several."""
    drawn = lanes(timelines)
    what = " ".join(repr(one).replace("\n", "; ") for one in timelines)
    return drawn.board.picture(f"Timeline of {what} {drawn.words()}")


def lanes(timelines: Sequence[Timeline], title: str = "") -> Lanes:
    """Returns the board of the picture."""
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


def _kind(timelines: Sequence[Timeline]) -> Kind:
    """Returns the kind of all of them; if some are modelled, the others' kind says so."""
    kinds: list[Kind] = sorted({one.kind for one in timelines}, key=lambda kind: kind.name)
    if len(kinds) == 1:
        return kinds[0]
    if kinds[0].name == "modelled":
        return modelled(kinds[0].source.partition(";")[0])  # without the times
    return Kind(kinds[0].name, f"{kinds[0].source}; the others are modelled")


def _pieces(timeline: Timeline, rank: int, lane: int) -> list[Bar]:
    found = []
    times = zip(timeline.starts[rank], timeline.ends[rank], strict=True)
    for piece, (start, end) in zip(timeline.schedule.rows[rank], times, strict=True):
        (kind, m, *_), chunk = piece, chunk_of(piece)
        state = f"{kind} of chunk {chunk}" if chunk else f"{kind}"
        found.append(Bar(lane, state, start, end, (f"{kind}{m}", f"{m}")))
    return found


def _states(chunks: int) -> dict[str, BarStyle]:
    """Returns the styles of bars. Of several chunks each takes a part of the lane's height."""
    high = 0.72 / chunks
    states = {"waits": BarStyle("waits (bubble)", None)}
    for kind, (name, series) in KINDS.items():
        states[kind] = BarStyle(name, series, 0.08, high, margin=3)
        for chunk in range(1, chunks):
            top = 0.08 + chunk * high
            states[f"{kind} of chunk {chunk}"] = BarStyle("", series, top, high, margin=3)
    return states


def player(timeline: Timeline) -> Player:
    """Returns the timeline piece by piece, by buttons and keys."""
    still = cache(timeline.picture)
    title, alt = timeline.schedule.title, still().alt
    return Player.of("pipeline", title, alt, still, lambda: packed(content(timeline)))


def players(timelines: Sequence[Timeline], still: Callable[[], Picture]) -> Player:
    """Returns timelines below each other, under one clock."""
    title = " beside ".join(one.schedule.title for one in timelines)
    parts = [{"data": packed(content(one))} for one in timelines]
    return Player.together("pipelines", title, still, parts, unit="")


def content(timeline: Timeline) -> dict[str, Any]:
    """Returns what the page shows, each piece as [kind, micro-batch, chunk, stage, start, end].

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
        **({"opens": timeline.opens} if timeline.opens else {}),
        "weights": schedule.has_weights,
        "choice": {
            "name": schedule.name.partition(",")[0], "stages": schedule.stages,
            "microbatches": schedule.micro_batches, "times": timeline.times,
        },
        "rows": [
            [(*piece[:2], chunk_of(piece),
              stages[int(piece[1]) % len(stages)][rank, chunk_of(piece)],
              round(a - first, 9), round(b - first, 9))
             for piece, a, b in zip(row, starts, ends, strict=True)]
            for rank, (row, starts, ends) in enumerate(
                zip(schedule.rows, timeline.starts, timeline.ends, strict=True))
        ],
    }  # fmt: skip
