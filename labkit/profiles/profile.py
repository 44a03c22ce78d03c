"""A profile of one rank or of several: what covers how long, what is exposed, and the picture."""

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from labkit.arguments import one_of
from labkit.kinds import Kind, LabError, measured, recorded, seconds_text
from labkit.profiles.reading import TraceFile, load
from labkit.profiles.trace_spans import COMPUTE, KINDS, TraceSpan, covered, inside, union
from labkit.shown import ShownAsTable

FRESH = 3600  # seconds; an older trace is a recording
PIXELS = 1500  # of a picture: what is less than one apart is drawn as one
PARTS = ("computing", "communication alone", "input alone", "nothing recorded")


@dataclass(frozen=True, repr=False)
class Profile(ShownAsTable):
    """The spans of each rank, in seconds since the first of all of them."""

    spans: Mapping[Any, list[TraceSpan]]
    memory: Mapping[Any, list[tuple[float, int]]]
    """When how many bytes of the host's memory were allocated, where `profile_memory=True`."""
    kind: Kind

    @property
    def ranks(self) -> list[Any]:
        """The names of the ranks, as given to `read`, or as the traces say."""
        return [*self.spans]

    def intervals(self, kind: str, rank: Any = None) -> list[tuple[float, float]]:
        """Returns (start, end) of each span of a kind, of the first rank unless you say which."""
        one_of("kind", kind, KINDS)
        return [span[:2] for span in self._of(rank) if span.kind == kind]

    def steps(self, rank: Any = None) -> list[tuple[float, float]]:
        """Returns the marked steps in which something ran; without marks, the whole trace."""
        spans = [span for span in self._of(rank) if span.kind != "step"] or self._of(rank)
        starts = [span.start for span in spans]
        marked = [
            (start, end)
            for start, end in self.intervals("step", rank)
            if bisect_left(starts, end) > bisect_left(starts, start)
        ]
        return marked or [(spans[0].start, max(span.end for span in spans))]

    def breakdown(self, rank: Any = None) -> list[dict[str, float]]:
        """Returns the seconds of each step that are spent in each of PARTS, which add up to it.

        Communication and input count only where nothing is computed at the same time.
        """
        found = []
        kinds = (COMPUTE, (*COMPUTE, "communication"), (*COMPUTE, "communication", "input"))
        parts = [union(span[:2] for span in self._of(rank) if span.kind in one) for one in kinds]
        for start, end in self.steps(rank):
            until = [covered(inside(part, start, end)) for part in parts]
            shares = [b - a for a, b in pairwise([0.0, *until, end - start])]
            found.append(dict(zip(PARTS, shares, strict=True)))
        return found

    def exposed(self, rank: Any = None) -> float:
        """Returns the share of communication during which nothing was computed."""
        computing = [span[:2] for span in self._of(rank) if span.kind in COMPUTE]
        communication = self.intervals("communication", rank)
        total = covered(communication)
        alone = covered(computing + communication) - covered(computing)
        return alone / total if total else 0.0

    def input_share(self, rank: Any = None) -> float:
        """Returns the share of the marked steps in which the program waits for input."""
        steps = self.steps(rank)
        waiting = self.intervals("input", rank)
        return sum(covered(inside(waiting, *one)) for one in steps) / covered(steps)

    def table(self) -> Any:
        """What covers how long on each rank, and what remains."""
        from labkit.views.table import Table

        totals = {
            rank: {
                kind: covered(self.steps(rank) if kind == "step" else self.intervals(kind, rank))
                for kind in KINDS
            }
            for rank in self.ranks
        }
        rows = [
            [kind, *(seconds_text(one[kind]) if one[kind] else "" for one in totals.values())]
            for kind in KINDS
            if any(one[kind] for one in totals.values())
        ]
        steps = [f"{len(self.steps(rank))}" for rank in self.ranks]
        shares = {rank: self.breakdown(rank) for rank in self.ranks}
        for part in PARTS:
            seconds = [sum(step[part] for step in shares[rank]) for rank in self.ranks]
            if any(one > 1e-9 for one in seconds):
                rows.append([f"in steps: {part}", *map(seconds_text, seconds)])
        head = ["covered by", *map(self._name, self.ranks)]
        footer = f"Steps: {', '.join(steps)}. Spans of two kinds may overlap; the last rows add up."
        return Table(head, rows, f"Profile, {self.kind}", footer)

    def picture(self, start: float = 0.0, end: float | None = None) -> Any:
        """Returns a lane for each rank: computation above, communication and input below."""
        from labkit.views.lanes import Bar, BarStyle, Lanes

        upper = dict(zip(("forward", "backward", "optimizer"), range(3), strict=True))
        lower = {"communication": 3, "input": 4}
        states = {"step": BarStyle("step", None, 0.04, 0.84)}
        states |= {name: BarStyle(name, at, 0.08, 0.36) for name, at in upper.items()}
        states |= {
            "kernel": BarStyle("kernel", 0, 0.08, 0.36),
            "copy": BarStyle("copy", 6, 0.08, 0.36),
        }
        states |= {name: BarStyle(name, at, 0.46, 0.26) for name, at in lower.items()}
        states["input thread"] = BarStyle("input thread", 5, 0.74, 0.1)
        last = max(end for rank in self.ranks for _, end in self.steps(rank))
        end = last if end is None else min(end, last)
        if not start < end:
            raise LabError(
                f"Nothing lies between {start} and {end}: the trace ends at {last:.3g} s."
            )
        bars = []
        for lane, rank in enumerate(self.ranks):
            for kind in states:
                spans = self.steps(rank) if kind == "step" else self.intervals(kind, rank)
                near = (end - start) / PIXELS
                for a, b in joined(inside(spans, start, end), 0 if kind == "step" else near):
                    bars.append(Bar(lane, kind, a - start, b - start))
        title = "What each rank does" if len(self.ranks) > 1 else "What the program does"
        subtitle = "Computation above, communication and input below; grey: a step."
        names = [*map(self._name, self.ranks)]
        lanes = Lanes(title, subtitle, bars, states, names, self.kind, high=64)
        about = (
            f"{self._name(rank)}: "
            + ", ".join(
                f"{part} {seconds_text(sum(step[part] for step in self.breakdown(rank)))}"
                for part in PARTS
            )
            for rank in self.ranks
        )
        alt = f"{title} in {seconds_text(end - start)}. In all steps, {'; '.join(about)}."
        return lanes.board.picture(alt)

    def _name(self, rank: Any) -> str:
        return f"rank {rank}" if isinstance(rank, int) else str(rank)

    def _of(self, rank: Any) -> list[TraceSpan]:
        rank = self.ranks[0] if rank is None else one_of("rank", rank, self.ranks)
        return self.spans[rank]


def joined(spans: Iterable[tuple[float, float]], near: float) -> list[tuple[float, float]]:
    """Returns the union of spans, where those less than `near` apart are one."""
    return [(a, b - near) for a, b in union((a, b + near) for a, b in spans)]


def read(source: Any, kind: Kind | None = None) -> Profile:
    """Reads a trace, a folder of tf.profiler, a list of traces, or a mapping from rank to trace.

    All ranks share the wall clock of their machine. A trace that is too large, cut or damaged
    raises a LabError. `kind` is what pictures say of it: without, a trace of the last hour is
    called measured, an older one recorded.
    """
    if isinstance(source, str | Path):
        source = [source]
    try:
        given = dict(source) if isinstance(source, Mapping) else dict(enumerate(source))
        files = {rank: _file(Path(path)) for rank, path in given.items()}
    except TypeError:
        raise LabError(
            f"{source!r:.80} is not the path of a trace. Give a path, a list, or {{rank: path}}."
        ) from None
    if not files:
        raise LabError("There is no trace in an empty list. Give the path of one.")
    traces = {rank: load(path) for rank, path in files.items()}
    said = [trace.rank for trace in traces.values()]
    if not isinstance(source, Mapping) and None not in said and len({*said}) == len(said):
        traces = dict(sorted((trace.rank or 0, trace) for trace in traces.values()))
    return _on_one_clock(traces, kind)


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.rglob("*.xplane.pb"))
    if len(found) != 1:
        raise LabError(
            f"{path} holds {len(found)} files *.xplane.pb. Name one of them, and give each run "
            "and each rank its own folder."
        )
    return found[0]


def _on_one_clock(traces: Mapping[Any, TraceFile], kind: Kind | None) -> Profile:
    zero = min(trace.spans[0].start for trace in traces.values())
    last = max(span.end for trace in traces.values() for span in trace.spans)
    if (last - zero) / 1e9 > FRESH:
        raise LabError(
            "These traces lie more than an hour apart. Give those of ranks that ran together."
        )
    spans = {
        rank: [
            one._replace(start=(one.start - zero) / 1e9, end=(one.end - zero) / 1e9)
            for one in trace.spans
        ]
        for rank, trace in traces.items()
    }
    memory = {rank: [((at - zero) / 1e9, size) for at, size in trace.memory]
              for rank, trace in traces.items()}  # fmt: skip
    tools = " and ".join(sorted({trace.tool for trace in traces.values()}))
    when = f"{datetime.fromtimestamp(zero / 1e9, UTC):%Y-%m-%d}"
    fresh = 0 <= time.time() - zero / 1e9 < FRESH
    here = measured(f"this machine, by {tools}")
    elsewhere = recorded(f"the machine of the trace, by {tools}", when)
    return Profile(spans, memory, kind or (here if fresh else elsewhere))
