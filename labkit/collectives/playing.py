"""A run as an animation: in the notebook, in an exported page, in a file of its own.

>>> from labkit import collectives
>>> trace = collectives.run(collectives.programs.broadcast, ranks=4)
>>> print(trace.player().alt.split(". ")[0])
Animation of broadcast on 4 ranks: 3 messages in 2 steps, 96 B
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.kinds import LabError, bytes_text, count_text, seconds_text

if TYPE_CHECKING:
    from labkit.collectives.pricing import Timed
    from labkit.collectives.story import Story
    from labkit.collectives.topologies import Topology
    from labkit.collectives.trace import Trace

__all__ = ["BANDWIDTH", "LATENCY", "Player", "player"]

# A network between machines, when nobody has said which: 5 µs, 10 GB/s.
LATENCY, BANDWIDTH = 5e-6, 10e9


@dataclass(frozen=True)
class Player:
    """A run that plays in the browser. Name it in a cell, or save it as a page."""

    trace: Trace = field(repr=False)
    story: Story = field(repr=False)
    timed: Timed = field(repr=False)

    @property
    def alt(self) -> str:
        """In words what there is to see."""
        return _described(self.trace, self.story, self.timed)

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

        target = Path(path)
        try:
            target.write_text(document(self.html(), self.trace.program), encoding="utf-8")
        except OSError as fault:
            raise LabError(
                f"The animation cannot be written to {str(path)!r}: {fault.strerror or fault}. "
                "Give a name that ends in .html, in a folder that exists and is yours."
            ) from fault
        return target

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        data = {"text/plain": self.alt}
        if os.environ.get("LABKIT_PICTURES") != "still":
            # The picture is inside the HTML, and seen there also where no script may run.
            return {**data, "text/html": self.html()}, {}
        data["image/png"] = base64.b64encode(self.still.png).decode("ascii")
        return data, {"image/png": {"width": self.still.width, "alt": self.alt}}


def player(
    trace: Trace,
    latency: float | None = None,
    bandwidth: float | None = None,
    reduction: float = 0.0,
    topology: Topology | None = None,
) -> Player:
    """The animation of a run, with its times modelled on links of your choice.

    Without any, a message takes 5 µs and a second moves 10 GB.
    """
    if topology is None:
        latency = LATENCY if latency is None else latency
        bandwidth = BANDWIDTH if bandwidth is None else bandwidth
    timed = trace.timed(
        latency=latency, bandwidth=bandwidth, reduction=reduction, topology=topology
    )
    return Player(trace, trace.story(), timed)


def _described(trace: Trace, story: Story, timed: Timed) -> str:
    messages = len(trace.messages)
    words = f"Animation of {trace.program} on {_counted(trace.ranks, 'rank')}: "
    words += f"{_counted(messages, 'message')} in {_counted(trace.steps, 'step')}, "
    words += f"{bytes_text(sum(trace.bytes_sent))}."
    last = [change for row in story.at(trace.steps) for change in row]
    known = [change.counts for change in last if change.counts is not None]
    whole = sum(all(count == 1 for count in counts) for counts in known)
    if trace.ranks > 1 and whole:
        words += f" After the last step {whole} of {_counted(len(last), 'piece')} hold every rank's"
        words += " contribution once."
    return f"{words} {seconds_text(timed.seconds)}, {timed.kind}."


def _counted(count: int, what: str) -> str:
    return f"{count_text(count)} {what}" if count == 1 else f"{count_text(count)} {what}s"
