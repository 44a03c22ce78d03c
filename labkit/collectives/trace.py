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
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labkit.arguments import number, whole
from labkit.collectives import chrome, clock
from labkit.collectives.check import Verdict, check
from labkit.collectives.contributions import Story, contributions
from labkit.collectives.records import Array, Record, counted
from labkit.collectives.simulator import MOST_RANKS, simulate
from labkit.kinds import LabError, bytes_text, seconds_text
from labkit.plain import atomic_write, read, stored, write

__all__ = ["Player", "Trace", "check_program", "make_buffers", "run"]

# The player's links where none are given, a network between machines: 5 µs, 10 GB/s.
LATENCY, BANDWIDTH = 5e-6, 10e9


def run(
    program: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    *,
    ranks: int | None = None,
    eager: int = 0,
    deadline: float = 60.0,
    **options: Any,
) -> Trace:
    """Run `program(comm, buffer, **options)` on every rank, in turns, in this process.

    `inputs` holds one array per rank, and each is copied; `ranks=8` makes some: rank r gets the
    whole numbers from 8r + 1 to 8r + 8. A `Send` waits for its receiver, whatever its size, so that
    a program that ends here ends for messages of every size; MPI libraries do not wait with small
    ones, and `eager=4096` does the same for those of up to 4,096 bytes.
    """
    check_program(program, options)
    number("deadline", deadline, above=0)
    whole("eager", eager)
    buffers = make_buffers(inputs, ranks, MOST_RANKS)
    record = simulate(program, buffers, options, eager=eager, deadline=deadline)
    return Trace(**{one.name: getattr(record, one.name) for one in fields(record)})


@stored
@dataclass(frozen=True, repr=False)
class Trace(Record):
    """A program that ran: who sent what to whom, in which step, and what it made of the data."""

    def check(self, collective: str, op: Any = None, root: int | None = None) -> Verdict:
        """Whether the run did what the collective promises; when not, where and what is wrong."""
        return check(self, collective, op=op, root=root)

    def timed(self, *arguments: Any, **keywords: Any) -> clock.Timed:
        """When each message would begin and end on given links, modelled."""
        return clock.timed(self, *arguments, **keywords)

    def cost(self, *arguments: Any, **keywords: Any) -> clock.Seconds:
        """How long the run would take on given links, modelled message by message."""
        return self.timed(*arguments, **keywords).seconds

    def story(self, op: str | None = None) -> Story:
        """Who holds whose contribution after each step."""
        return contributions(self, op)

    def figure(self, step: int | None = None) -> Any:
        """A picture of who holds what: after one step, or before and after the run."""
        from labkit.views.collective_figure import figure

        return figure(self, step=step)

    def timeline(self, *arguments: Any, **keywords: Any) -> Any:
        """A picture of when each rank sends, receives, works and waits."""
        from labkit.views.collective_figure import timeline

        return timeline(self, *arguments, **keywords)

    def player(
        self,
        latency: float | None = None,
        bandwidth: float | None = None,
        reduction: float = 0.0,
        topology: Any = None,
        op: str | None = None,
    ) -> Player:
        """The run as an animation, its times modelled on links of your choice.

        Without any, a message takes 5 µs and a second moves 10 GB.
        """
        if topology is None:
            latency = LATENCY if latency is None else latency
            bandwidth = BANDWIDTH if bandwidth is None else bandwidth
        timed = clock.timed(self, latency, bandwidth, reduction, topology)
        return Player(self, self.story(op), timed)

    def to_chrome(self, path: str | Path, **links: Any) -> Path:
        """Write the run as a trace that chrome://tracing and Perfetto open.

        With latency=, bandwidth=, … as for `timed`; without, in steps of 1 µs.
        """
        return _write(path, chrome.chrome_text(self, self.timed(**links) if links else None))

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
    """A run that plays in the browser. Name it in a cell, or save it as a page.

    >>> from labkit import collectives
    >>> trace = collectives.run(collectives.programs.broadcast, ranks=4)
    >>> print(trace.player().alt.split(". ")[0])
    Animation of broadcast on 4 ranks: 3 messages in 2 steps, 96 B
    """

    trace: Record = field(repr=False)
    story: Story = field(repr=False)
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
        last = [change for row in self.story.at(trace.steps) for change in row]
        whole = sum(set(change.counts) == {1} for change in last if change.counts is not None)
        if trace.ranks > 1 and whole:
            text += f" After the last step {whole} of {counted(len(last), 'piece')} hold every "
            text += "rank's contribution once."
        return f"{text} {seconds_text(self.timed.seconds)}, {self.timed.kind}."

    @cached_property
    def still(self) -> Any:
        """The picture that stands for it where nothing can play."""
        from labkit.views.player_still import still

        return still(self.trace, self.story, self.alt)

    def html(self) -> str:
        """A piece of a page that needs nothing else: no kernel, no network."""
        from labkit.views.player_page import page

        return page(self.trace, self.story, self.timed, alt=self.alt, png=self.still.png)

    def save(self, path: str | Path) -> Path:
        """Write it as a page of its own, for a browser, a mail or a web site."""
        from labkit.views.embed import document

        return _write(path, document(self.html(), self.trace.program))

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        data = {"text/plain": self.alt}
        if os.environ.get("LABKIT_PICTURES") != "still":
            # The picture is inside the HTML, and seen there also where no script may run.
            return {**data, "text/html": self.html()}, {}
        data["image/png"] = base64.b64encode(self.still.png).decode("ascii")
        return data, {"image/png": {"width": self.still.width, "alt": self.alt}}


# What a run is given, checked: a program, its options, and an array for each rank.


def check_program(program: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuse what is no program, or cannot take these options."""
    if not callable(program):
        raise LabError(
            f"program must be a function of (comm, buffer), such as "
            f"collectives.programs.ring_all_reduce, got {program!r}."
        )
    inner = inspect.unwrap(getattr(program, "func", program))  # functools.partial
    name = getattr(inner, "__name__", type(inner).__name__)
    if inspect.isgeneratorfunction(inner) or inspect.iscoroutinefunction(inner):
        raise LabError(
            f"{name} is a generator or an async function, which would not run. Write it without "
            "yield, async and await."
        )
    try:
        inspect.signature(program).bind(None, None, **options)
    except ValueError:
        pass  # it has no signature to look at
    except TypeError as fault:
        advice = "Give run the keywords that the program needs, and only those."
        if "too many positional" in str(fault):
            advice = "Write def program(comm, buffer): every rank is given these two."
        raise LabError(
            f"{name} cannot be called as program(comm, buffer"
            f"{''.join(f', {option}=...' for option in options)}): {fault}. {advice}"
        ) from None


def make_buffers(inputs: Sequence[Any] | None, ranks: int | None, most: int) -> list[Array]:
    """A buffer per rank: a copy of each input, or whole numbers that count through the ranks."""
    if inputs is None:
        if ranks is None:
            raise LabError("A run needs its data: give inputs=[one array per rank], or ranks=8.")
        _check_count(ranks := whole("ranks", ranks, at_least=1), most)
        return [np.arange(1.0, ranks + 1) + rank * ranks for rank in range(ranks)]
    try:
        given = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
    except TypeError:
        raise LabError(f"inputs must be a list of one array per rank, got {inputs!r}.") from None
    if not given:
        raise LabError("inputs is empty. Give one array per rank: the first is rank 0's.")
    if ranks is not None and ranks != len(given):
        raise LabError(f"ranks={ranks}, but inputs has {len(given)} arrays. Leave ranks out.")
    _check_count(len(given), most)
    buffers = [_buffer(item, rank) for rank, item in enumerate(given)]
    dtypes = {str(buffer.dtype) for buffer in buffers}
    if len(dtypes) > 1:
        raise LabError(
            f"The inputs hold {' and '.join(sorted(dtypes))}. Give every rank the same: "
            "np.asarray(values, dtype=...)."
        )
    kind = buffers[0].dtype
    if kind.kind in "OSUmM" or kind.names:
        raise LabError(f"inputs must be arrays of numbers, got {kind}.")
    return buffers


def _check_count(ranks: int, most: int) -> None:
    if ranks > most:
        raise LabError(
            f"At most {most} ranks run on one machine, got {ranks:,}. What labkit's own programs "
            "cost on many thousand ranks, collectives.cost computes."
        )


def _buffer(item: Any, rank: int) -> Array:
    try:
        return np.array(item, order="C", copy=True)
    except (TypeError, ValueError) as fault:
        raise LabError(f"The input of rank {rank} is no array of numbers: {fault}.") from None


def _write(path: str | Path, text: str) -> Path:
    path = Path(path)
    try:
        atomic_write(path, text)
    except OSError as fault:
        raise LabError(
            f"{path} cannot be written: {fault.strerror or fault}. Give the path of a file in a "
            "folder that exists and is yours."
        ) from fault
    return path
