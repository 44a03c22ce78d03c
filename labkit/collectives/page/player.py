"""The player as a piece of HTML: a run of N ranks that plays in the browser, without a kernel.

The run is inside as JSON, in columns: 64 ranks have thousands of changes. A small still picture is
what remains where scripts may not run, as in an untrusted notebook.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from labkit.collectives.clock import TimedRun
from labkit.collectives.contributions import Contributions
from labkit.collectives.page.message_shape import stage
from labkit.collectives.page.phases import Steps
from labkit.collectives.page.still import still
from labkit.collectives.records import Record
from labkit.kinds import bytes_text, counted, seconds_text
from labkit.views.embed import Player, packed
from labkit.views.figure import Picture

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
ENDED, UNKNOWN = -1, -2  # in place of the index of a place
Wrong: TypeAlias = Sequence[tuple[int, int, int]]  # (step, rank, cell)


def player(
    trace: Record, contributions: Contributions, timed: TimedRun, wrong: Wrong = (),
    *, brief: bool = False,
) -> Player:  # fmt: skip
    """Returns the run as an animation, with what there is to see in words.

    `wrong` are cells that it outlines, as (step from which, rank, cell); it opens at the first one.
    """
    counts = f"{counted(len(trace.messages), 'message')} in {counted(trace.steps, 'step')}"
    alt = (
        f"Animation of {trace.program} on {counted(trace.ranks, 'rank')}: {counts}, "
        f"{bytes_text(sum(trace.bytes_sent))}."
    )
    last = [change for row in contributions.at(trace.steps) for change in row]
    whole = sum(change.counts == (1,) * trace.ranks for change in last)
    if trace.ranks > 1 and whole:
        alt += f" After the last step {whole} of {counted(len(last), 'piece')} hold every "
        alt += "rank's contribution once."
    alt += f" {seconds_text(timed.seconds)}, {timed.kind}."
    return Player.of(
        "player", trace.program, alt, partial(still, trace, contributions, alt),
        partial(run_data, trace, contributions, timed),
        partial(still, trace, contributions, alt, small=True), wrong=list(wrong),
        **{"brief": True} if brief else {},
    )  # fmt: skip


def players(
    traces: Sequence[Record], held: Sequence[Contributions], times: Sequence[TimedRun],
    still: Callable[[], Picture],
) -> Player:  # fmt: skip
    """Returns runs as animations beside each other, under one clock."""
    parts = [{"data": run_data(*one), "wrong": []} for one in zip(traces, held, times, strict=True)]
    title = " beside ".join(one.program for one in traces)
    return Player.together("players", title, still, parts, unit="s")


def run_data(trace: Record, contributions: Contributions, timed: TimedRun) -> str:
    """Returns what the page unpacks. The same run gives the same text."""
    return packed(content(trace, contributions, timed), ascii_only=False)


def content(trace: Record, contributions: Contributions, timed: TimedRun) -> dict[str, Any]:
    """Returns all that the player shows, as plain values, with changes in order of steps."""
    lines = sorted({(call.place.source, call.place.line) for call in trace.calls if call.place})
    index = {line: number for number, line in enumerate(lines)}
    places = {
        call.number: index[call.place.source, call.place.line] if call.place else UNKNOWN
        for call in trace.calls
    }
    messages = sorted(trace.messages, key=lambda one: (one.step, one.number))
    sent = [(one.step, one.source, one.dest) for one in messages]
    shape = stage(trace.ranks, trace.steps, sent) if contributions.cells else None
    where = _places_by_step(trace, places)
    steps = Steps(trace, contributions, where, shape)
    changes = sorted(contributions.changes, key=lambda one: one.step)
    holdings: dict[str | None, int] = {}
    return {
        "program": trace.program,
        "ranks": trace.ranks,
        "steps": trace.steps,
        "options": trace.options,
        "op": contributions.op,
        "sources": [[one.name, one.first, one.text] for one in trace.sources],
        "places": lines,
        "where": where,
        "messages": {
            "source": [one.source for one in messages],
            "dest": [one.dest for one in messages],
            "step": [one.step for one in messages],
            "nbytes": [one.nbytes for one in messages],
            "from": [one.sent_from for one in messages],
            "into": [one.into for one in messages],
            **({"fate": [steps.fates[one.number] for one in messages]} if shape else {}),
            "sentAt": [places.get(one.sent_by, UNKNOWN) for one in messages],
            "receivedAt": [places.get(one.received_by, UNKNOWN) for one in messages],
        },
        "shape": shape,
        "phases": steps.phases,
        "says": [steps.says(step) for step in range(trace.steps + 1)],
        "cells": contributions.cells,
        "changes": {
            "step": [one.step for one in changes],
            "rank": [one.rank for one in changes],
            "cell": [one.cell for one in changes],
            "holding": [holdings.setdefault(_digits(one.counts), len(holdings)) for one in changes],
            "text": [one.text for one in changes],
        },
        "holdings": list(holdings),
        "clock": _arrivals(trace, timed),
        "link": str(timed.kind),
    }


def _arrivals(trace: Record, timed: TimedRun) -> list[float]:
    """Returns the modelled time at which all messages up to each step have arrived."""
    ends = [0.0] * (trace.steps + 1)
    for message, end in zip(trace.messages, timed.ends, strict=True):
        ends[message.step] = max(ends[message.step], end)
    for step in range(1, trace.steps + 1):
        ends[step] = max(ends[step], ends[step - 1])
    ends[-1] = max(ends[-1], float(timed.seconds))  # a rank may start late
    return [float(f"{end:.6g}") for end in ends]


def _places_by_step(trace: Record, places: dict[int, int]) -> list[list[int]]:
    """For each step, in which place each rank is: sending, receiving or waiting."""
    rows = [[ENDED] * trace.ranks for _ in range(trace.steps)]
    reached = [0] * trace.ranks  # the last step that the rank has waited for
    for call in sorted(trace.calls, key=lambda one: one.number):
        for step in range(reached[call.rank], call.step):
            rows[step][call.rank] = places[call.number]
        reached[call.rank] = max(reached[call.rank], call.step)
    return rows


def _digits(counts: tuple[int, ...] | None) -> str | None:
    """Returns how often each rank is in there, as a digit each; z is more than 34 times."""
    return None if counts is None else "".join(DIGITS[min(one, 35)] for one in counts)
