"""Run a program on N simulated ranks, and hold what happened: to check, draw, time and play it.

>>> def halves(comm, buffer):
...     if comm.Get_rank() == 0:
...         comm.Send(buffer[:1], dest=1)
...     else:
...         comm.Recv(buffer[:1], source=0)
>>> run(halves, ranks=2)
Trace(halves: 2 ranks, 1 message, 1 step, 8 B from the busiest rank)
"""

from __future__ import annotations

import base64
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labkit.arguments import number, whole
from labkit.collectives import clock
from labkit.collectives.check import Verdict, check
from labkit.collectives.contributions import Contributions, contributions
from labkit.collectives.records import Array, Record, counted
from labkit.collectives.simulator import MOST_RANKS, simulate
from labkit.kinds import LabError, bytes_text, seconds_text
from labkit.plain import read, stored, write, write_text

__all__ = ["Player", "Trace", "check_program", "make_buffers", "run"]

LANES = ("sends", "receives", "works")  # of a rank, in chrome://tracing
STEPS = "modelled: no links were given, so each step is drawn as 1 µs"

# The player's links where none are given, a network between machines: 5 µs, 10 GB/s.
LINKS = {"latency": 5e-6, "bandwidth": 10e9}


def run(
    program: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    *,
    ranks: int | None = None,
    eager: int = 0,
    timeout: float = 60.0,
    **options: Any,
) -> Trace:
    """Run `program(comm, buffer, **options)` on every rank, in turns, in this process.

    `inputs` holds one array per rank, and each is copied; `ranks=8` makes some: rank r gets the
    whole numbers from 8r + 1 to 8r + 8. A `Send` waits for its receiver, whatever its size, so that
    a program that ends here ends for messages of every size; MPI libraries do not wait with small
    ones, and `eager=4096` does the same for those of up to 4,096 bytes.
    """
    check_program(program, options)
    number("timeout", timeout, above=0)
    whole("eager", eager)
    buffers = make_buffers(inputs, ranks, MOST_RANKS)
    record = simulate(program, buffers, options, eager=eager, timeout=timeout)
    return Trace(**{one.name: getattr(record, one.name) for one in fields(record)})


@stored
@dataclass(frozen=True, repr=False)
class Trace(Record):
    """A program that ran: who sent what to whom, in which step, and what it made of the data."""

    def check(self, collective: str, op: Any = None, root: int | None = None) -> Verdict:
        """Whether every rank ended with what the collective must leave; if not, what is wrong."""
        return check(self, collective, op=op, root=root)

    def timed(self, *arguments: Any, **keywords: Any) -> clock.Timed:
        """When each message would begin and end on given links, modelled."""
        return clock.timed(self, *arguments, **keywords)

    def cost(self, *arguments: Any, **keywords: Any) -> clock.Seconds:
        """How long the run would take on given links, modelled message by message."""
        return self.timed(*arguments, **keywords).seconds

    def contributions(self, op: str | None = None) -> Contributions:
        """Whose contributions each rank holds after each step."""
        return contributions(self, op)

    def figure(self, step: int | None = None) -> Any:
        """A picture of who holds what: before and after one step, or after each."""
        from labkit.views.collective_figure import figure

        return figure(self, step=step)

    def timeline(self, *arguments: Any, **keywords: Any) -> Any:
        """A picture of when each rank sends, receives, works and waits."""
        from labkit.views.timeline import timeline

        return timeline(self, *arguments, **keywords)

    def player(self, op: str | None = None, **links: Any) -> Player:
        """The run as an animation, its times modelled on links of your choice.

        Without latency=, bandwidth= or topology=, a message takes 5 µs and a second moves 10 GB.
        """
        links = links if "topology" in links else LINKS | links
        return Player(self, self.contributions(op), self.timed(**links))

    def to_chrome(self, path: str | Path, **links: Any) -> Path:
        """Write the run as a trace that chrome://tracing and Perfetto open.

        With latency=, bandwidth=, … as for `timed`; without, in steps of 1 µs.
        """
        return write_text(path, _chrome_text(self, self.timed(**links) if links else None))

    def save(self, path: str | Path) -> Path:
        """Write the trace to a JSON file; `Trace.load(path)` reads it back."""
        return write(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """The trace that `save` wrote."""
        trace: Trace = read(path, (cls,), "a trace")
        return trace

    def __repr__(self) -> str:
        busiest = bytes_text(max(self.bytes_sent, default=0))
        counts = (counted(self.ranks, "rank"), counted(len(self.messages), "message"))
        text = (
            f"Trace({self.program}: {', '.join(counts)}, {counted(self.steps, 'step')}, "
            f"{busiest} from the busiest rank)"
        )
        return f"{text}\n{self.note}" if self.note else text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """The animation, with the one line where only text is read."""
        data, metadata = self.player()._repr_mimebundle_(include, exclude)
        return {**data, "text/plain": repr(self)}, metadata


@dataclass(frozen=True)
class Player:
    """A run that plays in the browser. Name it in a cell, or save it as a page."""

    trace: Record = field(repr=False)
    contributions: Contributions = field(repr=False)
    timed: clock.Timed = field(repr=False)

    @cached_property
    def alt(self) -> str:
        """In words what there is to see."""
        trace = self.trace
        text = (
            f"Animation of {trace.program} on {counted(trace.ranks, 'rank')}: "
            f"{counted(len(trace.messages), 'message')} in {counted(trace.steps, 'step')}, "
            f"{bytes_text(sum(trace.bytes_sent))}."
        )
        last = [change for row in self.contributions.at(trace.steps) for change in row]
        whole = sum(change.counts == (1,) * trace.ranks for change in last)
        if trace.ranks > 1 and whole:
            text += f" After the last step {whole} of {counted(len(last), 'piece')} hold every "
            text += "rank's contribution once."
        return f"{text} {seconds_text(self.timed.seconds)}, {self.timed.kind}."

    @cached_property
    def still(self) -> Any:
        """The picture that stands for it where nothing can play."""
        from labkit.views.collective_figure import still

        return still(self.trace, self.contributions, self.alt)

    def html(self) -> str:
        """A piece of a page that needs nothing else: no kernel, no network."""
        from labkit.views.player_page import page

        return page(self.trace, self.contributions, self.timed, alt=self.alt)

    def save(self, path: str | Path) -> Path:
        """Write it as a page of its own, for a browser, a mail or a web site."""
        from labkit.views.embed import document

        return write_text(path, document(self.html(), self.trace.program))

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        data = {"text/plain": self.alt}
        if os.environ.get("LABKIT_PICTURES") != "still":
            # The picture is inside the HTML, and seen there also where no script may run.
            return {**data, "text/html": self.html()}, {}
        data["image/png"] = base64.b64encode(self.still.png).decode("ascii")
        return data, {"image/png": {"width": self.still.width, "alt": self.alt}}


def check_program(program: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuse what is no program, or cannot take these options."""
    inner = inspect.unwrap(getattr(program, "func", program))  # functools.partial
    if not callable(program) or inspect.isgeneratorfunction(inner):
        raise LabError(
            f"program must be a function of (comm, buffer), such as "
            f"collectives.programs.ring_all_reduce, and no generator, got {program!r}."
        )
    with suppress(ValueError):  # it has no signature to look at
        try:
            inspect.signature(program).bind(None, None, **options)
        except TypeError as fault:
            name = getattr(inner, "__name__", type(inner).__name__)
            given = "".join(f", {option}=..." for option in options)
            raise LabError(
                f"{name} cannot be called as program(comm, buffer{given}): {fault}. Write "
                "def program(comm, buffer), and give run the keywords that it needs."
            ) from None


def make_buffers(inputs: Sequence[Any] | None, ranks: int | None, most: int) -> list[Array]:
    """A buffer per rank: a copy of each input, or whole numbers that count through the ranks."""
    if inputs is None:
        if ranks is None:
            raise LabError("A run needs its data: give inputs=[one array per rank], or ranks=8.")
        _check_count(whole("ranks", ranks, at_least=1), most)
        return [np.arange(1.0, ranks + 1) + rank * ranks for rank in range(ranks)]
    try:
        given = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
    except TypeError:
        raise LabError(f"inputs must be a list of one array per rank, got {inputs!r}.") from None
    if not given or ranks not in (None, len(given)):
        have = f"has {len(given)} arrays" if given else "is empty"
        raise LabError(f"ranks={ranks}, but inputs {have}. Give one array per rank, and no ranks.")
    _check_count(len(given), most)
    buffers = []
    for rank, item in enumerate(given):
        try:
            buffers.append(np.array(item, order="C", copy=True))
        except (TypeError, ValueError) as fault:
            raise LabError(f"The input of rank {rank} is no array of numbers: {fault}.") from None
    dtypes = sorted({str(buffer.dtype) for buffer in buffers})
    if len(dtypes) > 1 or buffers[0].dtype.kind in "OSUmM" or buffers[0].dtype.names:
        raise LabError(
            f"inputs must be arrays of numbers, all of one dtype, got {' and '.join(dtypes)}."
        )
    return buffers


def _check_count(ranks: int, most: int) -> None:
    if ranks > most:
        raise LabError(
            f"At most {most} ranks run on one machine, got {ranks:,}. What labkit's own programs "
            "cost on many thousand ranks, collectives.cost computes."
        )


def _chrome_text(record: Record, timed: clock.Timed | None = None) -> str:
    """The JSON that chrome://tracing opens, with the times of a clock; else in steps of 1 µs."""
    times = STEPS if timed is None else str(timed.kind)
    about = {"program": record.program, **record.options, "times": times}
    content = {"traceEvents": list(_events(record, timed)), "otherData": about}
    return json.dumps(content | {"displayTimeUnit": "ns"}, ensure_ascii=False)


def _events(record: Record, timed: clock.Timed | None) -> Iterator[dict[str, Any]]:
    """Names of lanes, a bar at both ends of each message, an arrow between them, and the work."""
    for rank in range(record.ranks):
        name: dict[str, Any] = {"ph": "M", "pid": rank + 1}
        yield {**name, "name": "process_name", "args": {"name": f"rank {rank}"}}
        yield {**name, "name": "process_sort_index", "args": {"sort_index": rank}}
        for lane in LANES:
            yield {**name, **_lane(rank, lane), "name": "thread_name", "args": {"name": lane}}
    for index, message in enumerate(record.messages):
        start, end = message.step - 1.0, float(message.step)
        if timed is not None:
            start, end = timed.starts[index] * 1e6, timed.ends[index] * 1e6
        flow = {"cat": "message", "name": "message", "id": message.number}
        sends, receives = _lane(message.source, "sends"), _lane(message.dest, "receives")
        about = {"bytes": message.nbytes, "elements": message.count, "step": message.step}
        sent, received = record.calls[message.sent_by], record.calls[message.received_by]
        yield _bar(sends, f"to {message.dest}", start, end, call=sent.name, **about)
        yield _bar(receives, f"from {message.source}", start, end, call=received.name, **about)
        # Well inside its bar: at its very end an arrow would hang on the next one.
        yield {"ph": "s", **flow, **sends, "ts": start + 0.25 * (end - start)}
        yield {"ph": "f", "bp": "e", **flow, **receives, "ts": start + 0.75 * (end - start)}
    for work in () if timed is None else timed.work:
        yield _bar(_lane(work.rank, "works"), "reduce", work.start * 1e6, work.end * 1e6)


def _lane(rank: int, lane: str) -> dict[str, int]:
    """A rank is a process, what it does at once are its threads; 0 is the system's own process."""
    return {"pid": rank + 1, "tid": len(LANES) * rank + LANES.index(lane) + 1}


def _bar(lane: dict[str, int], name: str, start: float, end: float, **about: Any) -> dict[str, Any]:
    return {"ph": "X", **lane, "name": name, "ts": start, "dur": end - start, "args": about}
