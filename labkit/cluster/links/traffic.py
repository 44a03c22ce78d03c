"""What links carry in a run, as a table, a picture and a live panel."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import plain
from labkit.arguments import one_of
from labkit.cluster.links.network import Network, rate_words
from labkit.kinds import Kind, LabError, bytes_text, measured, modelled, recorded, seconds_text
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.telemetry.page.bridge import Bridge
    from labkit.views.embed import Player
    from labkit.views.figure import Picture
    from labkit.views.table import Table

# (time, {name: (bytes from it so far, bytes to it so far)}), where a name is "host 0" or "rack 0"
Samples = list[tuple[float, dict[str, tuple[int, int]]]]
NOT_COUNTED = "nothing is counted where links with a rate cannot be had"


@dataclass(frozen=True, repr=False)
class Traffic(ShownAsTable):
    """What the links carried in a run: samples of the kernel's counters, ten a second."""

    network: Network
    times: tuple[float, ...]
    """Seconds since the ranks were started."""
    sent: dict[str, tuple[int, ...]]
    """By host or rack: the bytes that have come from it until each time."""
    received: dict[str, tuple[int, ...]]
    kind: Kind
    when: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))

    @staticmethod
    def of(network: Network, samples: Samples) -> Traffic:
        """Returns the traffic of these samples, counted from the first sample on."""
        start, first = samples[0] if samples else (0.0, {})

        def column(way: int) -> dict[str, tuple[int, ...]]:
            return {
                name: tuple(counts[name][way] - first[name][way] for _, counts in samples)
                for name in first
            }

        times = tuple(when - start for when, _ in samples)
        kind = measured(f"this machine, {network}") if samples else modelled(NOT_COUNTED)
        return Traffic(network, times, column(0), column(1), kind)

    def bytes(self, name: str) -> tuple[int, int]:
        """Returns bytes from and to "host 0" or "rack 0" in the run, with protocol headers."""
        if not self.sent:
            raise LabError(f"No bytes of {name}: {NOT_COUNTED}.")
        one_of("The name of a link", name, tuple(self.sent))
        return self.sent[name][-1], self.received[name][-1]

    def save(self, path: str | Path) -> Path:
        """Write the traffic to a file, which `labkit.cluster.replay(path)` shows again."""
        return plain.write(path, self)

    def player(self) -> Player:
        """Returns hosts and links over time, to be played or shown at a moment."""
        from labkit.cluster.page.traffic_page import player

        return player(self)

    def picture(self) -> Picture:
        """Returns a picture of hosts and links, as thick as they were used."""
        from labkit.cluster.page.traffic_page import traffic

        return traffic(self)

    def table(self) -> Table:
        """Returns a table of links with rate, bytes and use."""
        from labkit.views.table import Table

        rows: list[list[str]] = []
        for name in self.sent:
            out, into = (bytes_text(count) for count in self.bytes(name))
            used = [f"{100 * share:.0f} %" for share in self.use(name)]
            rows.append([name, rate_words([self._rate(name)]), out, used[0], into, used[1]])
        head = ["link", "rate", "sent", "use", "received", "use"]
        footer = f"Bytes with headers; use while some link carried 5 % of its rate; {self.kind}."
        if not rows:
            return Table(
                ["link", "traffic"], [["all", "not counted"]], "Traffic", f"{NOT_COUNTED}."
            )
        caption = f"Traffic in {seconds_text(self.times[-1])}" if self.times else "Traffic"
        return Table(head, rows, caption, footer)

    def use(self, name: str) -> tuple[float, float]:
        """Returns the shares of the rate used from and to a host or rack.

        Only time counts in which some link carried at least 5 % of its rate.
        """
        seconds = 0.0
        for before, now in pairwise(range(len(self.times))):
            took = self.times[now] - self.times[before]
            if any(
                sums[now] - sums[before] >= 0.05 * self._rate(link) / 8 * took
                for counts in (self.sent, self.received)
                for link, sums in counts.items()
            ):
                seconds += took
        most = self._rate(name) / 8 * max(seconds, 1e-9)
        sent, received = self.bytes(name)
        return (sent / most, received / most) if seconds else (0.0, 0.0)

    def _rate(self, name: str) -> float:
        kind, number = name.split()
        return self.network.rates[int(number)] if kind == "host" else self.network.uplink


def replay(path: str | Path) -> Player:
    """Returns the player of traffic that `c.traffic().save(path)` has saved."""
    found = plain.read(path, Traffic, "the traffic of a cluster's links")
    return replace(found, kind=recorded(found.kind.source, found.when)).player()


class LinksPanel:
    """The links in all runs of a block: live while ranks run, and a player afterwards.

    >>> with labkit.cluster(ranks=4, link="100 Mbit/s") as c:    # doctest: +SKIP
    ...     c.panel()
    ...     c.run(train)
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self._samples: Samples = []
        self._key = uuid.uuid4().hex
        self._bridge: Bridge | None = None

    @property
    def traffic(self) -> Traffic:
        """All that was counted so far. It has `.player()` and `.save(path)`."""
        return Traffic.of(self.network, self._samples)

    def show(self) -> None:
        """Show, in a notebook, a picture that moves while ranks run."""
        from labkit.cluster.page.traffic_page import packed, page
        from labkit.telemetry.page.bridge import Bridge
        from labkit.views.live import publish, shows_live

        data = {"text/plain": repr(self)}
        if shows_live():
            self._bridge = Bridge(self._key, lambda: packed(self.traffic))
            empty = replace(self.traffic, kind=measured(f"this machine, {self.network}"))
            data["text/html"] = page(empty, key=self._key, live=True)
        publish((data, {}), self._key)

    def add(self, when: float, counts: dict[str, tuple[int, int]]) -> None:
        """Add a sample of the links' counters."""
        from labkit.cluster.page.traffic_page import row, source

        self._samples.append((when, counts))
        if self._bridge is not None:
            (start, first), lines = self._samples[0], [] if self._samples[1:] else [source(counts)]
            moved = [[now - then for now, then in zip(counts[name], first[name], strict=True)]
                     for name in counts]  # fmt: skip
            self._bridge.send(",".join([*lines, row(when - start, moved)]))

    def close(self) -> None:
        """End the live view. What was counted stays, as a player."""
        from labkit.views.live import publish

        if self._bridge is not None:
            self._bridge.close("the block has ended")
        if self._samples:
            publish(self.traffic.player()._repr_mimebundle_(), self._key, update=True)

    def __repr__(self) -> str:
        return f"Panel of {self.network}"
