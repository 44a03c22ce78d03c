"""When each rank sends, receives and waits, as lanes over time."""

from collections.abc import Sequence

from labkit.collectives import clock
from labkit.collectives.records import Record
from labkit.kinds import seconds_text
from labkit.views.figure import Picture
from labkit.views.lanes import Bar, BarStyle, Lanes

# A rank sends and receives at once. Waiting is what is left when all else lies over it.
STATES = {
    "waits": BarStyle("waits", None),
    "sends": BarStyle("sends to", 0, 0.08, 0.36),
    "receives": BarStyle("receives from", 1, 0.44, 0.36),
}


def timeline(records: Sequence[Record], times: Sequence[clock.TimedRun]) -> Picture:
    """Returns lanes over time, of several runs under one clock."""
    every: list[Bar] = []
    names: list[str] = []
    about: list[str] = []
    for record, timed in zip(records, times, strict=True):
        about.append(f"{record.program}, {record.ranks} rank{'s' * (record.ranks != 1)}")
        if len(records) > 1:
            # Bold, so it needs more room than its name in the lanes' own type.
            names.append(f"{record.program}: {seconds_text(timed.seconds)}\u2003\u2003")
            about[-1] += f", {seconds_text(timed.seconds)}"
        waits = [Bar(rank, "waits", 0.0, until) for rank, until in enumerate(timed.finished)]
        own = waits + bars(record, timed)
        every += [one._replace(lane=len(names) + one.lane) for one in own]
        names += [f"rank {rank}" for rank in range(record.ranks)]
    one_clock = f"{len(records)} programs under one clock"
    title = one_clock if len(records) > 1 else f"{records[0].program}: what each rank does"
    lanes = Lanes(title, "", every, STATES, names, timed.kind)
    return lanes.board.picture(f"Timeline of {' and '.join(about)}, {lanes.words()}")


def bars(record: Record, timed: clock.TimedRun) -> list[Bar]:
    """Every message, at its sender and at its receiver."""
    out = []
    for one, start, end in zip(record.messages, timed.starts, timed.ends, strict=True):
        out.append(Bar(one.source, "sends", start, end, (f"to {one.dest}", f"{one.dest}")))
        out.append(Bar(one.dest, "receives", start, end, (f"from {one.source}", f"{one.source}")))
    return out
