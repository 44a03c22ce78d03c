"""A schedule, and when each of its pieces runs: modelled by a clock, or measured in a run.

>>> from labkit.pipelines import schedule
>>> t = schedule("1f1b", stages=4, micro_batches=8).timeline(forward=1.0, backward=2.0)
>>> t.total, t.bubble, t.ratio_to_ideal, t.peak_activations
(33.0, 9.0, 0.375, [4, 3, 2, 1])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import fsum
from typing import TYPE_CHECKING, Any, TypeAlias

from labkit.arguments import number
from labkit.kinds import Kind, LabError, measured, modelled, percent_text
from labkit.pipelines.rows import Piece, Run, StagePath, checked, count, in_order, short

if TYPE_CHECKING:
    from labkit.views.embed import Player
    from labkit.views.figure import Picture
    from labkit.views.together import Together

Times: TypeAlias = tuple[tuple[float, ...], ...]
SHOWN = 30  # pieces of a row that a repr writes
CLOCK = "a piece starts when its rank is free and its input is there"


@dataclass(frozen=True)
class Schedule:
    """`rows[r]` lists the pieces of rank r, in order. Without W, a B is the whole backward pass.

    `paths` places the stages where they are not on the ranks in turn: a path lists the (rank,
    chunk) of each stage, and micro-batches take the paths in turn. ZB-V goes down and up again, on
    DualPipe's two paths every second micro-batch begins at the last rank.
    """

    rows: list[list[Piece]]
    name: str = "own schedule"
    note: str = ""
    paths: tuple[StagePath, ...] = ()

    def __post_init__(self) -> None:
        rows, paths = checked(self.rows, self.paths)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "paths", paths)
        _ = self.order  # or it deadlocks

    @property
    def stages(self) -> int:
        """The number of ranks. With several chunks, each holds as many stages of the model."""
        return len(self.rows)

    @cached_property
    def micro_batches(self) -> int:
        """The micro-batches of one step."""
        return count(self.rows)[0]

    @cached_property
    def chunks(self) -> int:
        """Chunks of the model on each rank."""
        return count(self.rows)[1]

    @property
    def parts(self) -> float:
        """The number of stages per rank, by which a rank's time is divided."""
        return len(self.paths[0]) / self.stages

    @cached_property
    def order(self) -> list[Run]:
        """Returns all pieces in an order in which each comes after what it needs."""
        return in_order(self.rows, self.paths)

    @property
    def title(self) -> str:
        """Name and size."""
        stages, count = self.stages, self.micro_batches
        many = f"{count} micro-batch{'es' * (count > 1)}"
        return f"{self.name}, {stages} stage{'s' * (stages > 1)} × {many}"

    @cached_property
    def has_weights(self) -> bool:
        """Whether W is a piece of its own."""
        return any(piece[0] == "W" for row in self.rows for piece in row)

    def peaks(self, before_backward: float = 1.0, before_weights: float = 1.0) -> list[float]:
        """What each rank holds at most, for what a micro-batch keeps until its B and then until W.

        A chunk holds its share of a stage. The defaults count micro-batches.
        """
        number("before_backward", before_backward, at_least=0)
        number("before_weights", before_weights, at_least=0)
        found = []
        for row in self.rows:
            held = [0, 0]
            most: float = 0
            for piece in row:
                held[0] += {"F": 1, "B": -1, "W": 0}[str(piece[0])]
                held[1] += {"F": 0, "B": int(self.has_weights), "W": -1}[str(piece[0])]
                most = max(most, held[0] * before_backward + held[1] * before_weights)
            share = most / self.parts
            found.append(int(share) if share == int(share) else share)
        return found

    def timeline(
        self, forward: float | Sequence[float] = 1.0, backward: float | Sequence[float] = 2.0, *,
        weight: float | Sequence[float] | None = None, hop: float = 0.0,
    ) -> Timeline:  # fmt: skip
        """When each piece runs, if a stage takes these times, and a message to a neighbour `hop`.

        A list gives each rank its own time. Without `weight`, half of `backward` is W where W is a
        piece; with it, a schedule without W takes `backward` + `weight` for a B.
        """
        return _play(self, forward, backward, weight, hop)

    def __repr__(self) -> str:
        lines = [self.title, *([self.note] if self.note else [])]
        for rank, row in enumerate(self.rows):
            shown = " ".join(short(piece) for piece in row[:SHOWN])
            lines.append(f"rank {rank}: {shown}{' …' if len(row) > SHOWN else ''}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Timeline:
    """`starts[r][i]` and `ends[r][i]` are those of piece i in row r of the schedule.

    `times` are those of F, B, W and a hop as they were given, if they are the same on all ranks.
    """

    schedule: Schedule
    starts: Times
    ends: Times
    kind: Kind
    times: tuple[float, float, float | None, float] | None = None
    opens: float = 0.0
    """The time at which its player opens."""

    @property
    def total(self) -> float:
        """From the first start, at 0, to the last end."""
        return max(row[-1] for row in self.ends)

    @property
    def step(self) -> float:
        """The longest time of one rank from its first start to its last end.

        It differs from `total` where ranks end one after the other, as they began: in ZB-H2, whose
        ranks begin the next step without waiting for each other.
        """
        pairs = zip(self.starts, self.ends, strict=True)
        return max(ends[-1] - starts[0] for starts, ends in pairs)

    @property
    def ideal(self) -> float:
        """The work of all ranks, divided equally."""
        pairs = zip(self.starts, self.ends, strict=True)
        return fsum(b - a for row in pairs for a, b in zip(*row, strict=True)) / len(self.starts)

    @property
    def bubble(self) -> float:
        """The time in a step in which a rank does not compute: `step` - `ideal`."""
        return self.step - self.ideal

    @property
    def ratio_to_ideal(self) -> float:
        """The bubble over the ideal time, as Megatron-LM gives it."""
        return self.bubble / self.ideal

    @property
    def share_of_total(self) -> float:
        """The bubble over the time of the step, as GPipe and zero-bubble give it."""
        return self.bubble / self.step

    @property
    def peak_activations(self) -> list[float]:
        """How many micro-batches of a full stage each rank holds at most.

        One is held from its F until its B, or until its W where that is a piece of its own.
        `schedule.peaks(b, w)` counts what is kept until B and until W separately.
        """
        return self.schedule.peaks()

    def picture(self) -> Picture:
        """Returns a picture with a lane for each rank."""
        return self.beside().picture()

    def beside(self, *others: Timeline) -> Together:
        """Returns this timeline and others under one clock: `.picture()` and `.player()`."""
        from labkit.pipelines.page.pipeline import picture, players
        from labkit.views.together import Together

        drawn = cache(partial(picture, (self, *others)))
        return Together(drawn, lambda: players((self, *others), drawn))

    def player(self) -> Player:
        """Returns the timeline piece by piece, by buttons and keys."""
        from labkit.pipelines.page.pipeline import player

        return player(self)

    def __repr__(self) -> str:
        peaks = ", ".join(f"{one:.4g}" for one in self.peak_activations[:8])
        more = ", …" if len(self.starts) > 8 else ""
        lines = [
            f"{self.schedule.title}: total {self.total:.4g}",
            f"bubble {self.bubble:.4g}: {percent_text(self.ratio_to_ideal)} of the ideal "
            f"{self.ideal:.4g}, {percent_text(self.share_of_total)} of the step",
            f"micro-batches held at most: {peaks}{more}",
            *([self.schedule.note] if self.schedule.note else []),
            f"{self.kind}.",
        ]
        return "\n".join(lines)

    def _repr_mimebundle_(self, **_: object) -> Any:
        data, metadata = self.player()._repr_mimebundle_()
        return {**data, "text/plain": repr(self)}, metadata


def _play(schedule: Schedule, forward: Any, backward: Any, weight: Any, hop: float) -> Timeline:
    """Run the pieces in order on a clock. Returns when each starts and ends."""
    ranks = schedule.stages
    fs, bs = _times("forward", forward, ranks), _times("backward", backward, ranks)
    ws = [0.0] * ranks if weight is None else _times("weight", weight, ranks)
    if schedule.has_weights and weight is None:
        bs = ws = [one / 2 for one in bs]
    elif not schedule.has_weights:
        bs = [b + w for b, w in zip(bs, ws, strict=True)]
    seconds = [[one / schedule.parts for one in times] for times in (fs, bs, ws)]
    hop = number("hop", hop, at_least=0)
    pieces = 3 * len(schedule.paths[0]) * schedule.micro_batches
    ended = [0.0] * (pieces + 1)  # the last one for needs -1
    free = [0.0] * ranks
    starts: list[list[float]] = [[] for _ in range(ranks)]
    ends: list[list[float]] = [[] for _ in range(ranks)]
    for rank, kind, piece, needs, crosses in schedule.order:
        start = max(free[rank], ended[needs] + hop * crosses)
        ended[piece] = free[rank] = end = start + seconds[kind][rank]
        starts[rank].append(start)
        ends[rank].append(end)
    given = {"F": fs, "B": bs, **({"W": ws} if schedule.has_weights else {}), "hop": [hop]}
    ranges = {name: sorted({min(times), max(times)}) for name, times in given.items()}
    values = [f"{name} {' to '.join(f'{t:g}' for t in ends)}" for name, ends in ranges.items()]
    clock = modelled(f"{CLOCK}; {', '.join(values)}")
    alike = not any(hasattr(one, "__len__") for one in (forward, backward, weight))
    w = None if weight is None else ws[0]
    times = (fs[0], float(backward), w, hop) if alike else None
    return Timeline(schedule, tuple(map(tuple, starts)), tuple(map(tuple, ends)), clock, times)


def measured_timeline(schedule: Schedule, spans: Sequence[Any], on: str) -> Timeline:
    """The timeline of a run: for each rank the start and end of each piece, on one clock."""
    if [len(row) for row in spans] != [len(row) for row in schedule.rows]:
        raise LabError("spans needs (start, end) of each piece of each row, in order.")
    first = min(start for row in spans for start, _ in row)
    starts = tuple(tuple(start - first for start, _ in row) for row in spans)
    ends = tuple(tuple(end - first for _, end in row) for row in spans)
    return Timeline(schedule, starts, ends, measured(on))


def _times(name: str, value: Any, ranks: int) -> list[float]:
    listed = list(value) if hasattr(value, "__len__") else [value] * ranks
    if len(listed) != ranks:
        raise LabError(f"{name} needs one time, or one for each of {ranks} ranks, got {value!r}.")
    return [number(name, one, above=0) for one in listed]
