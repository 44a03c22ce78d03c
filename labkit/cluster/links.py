"""Hosts and the links between them: which rank is on which host, the rate of each link, its bytes.

>>> two = Network.of(4, hosts=2, link="200 Mbit/s", links={"host 1": "50 Mbit/s"})
>>> print(two)
2 hosts with ranks 0–1, 2–3 at one switch; links of 200, 50 Mbit/s
>>> two.class_of(0, 1), two.class_of(1, 2), two.bandwidth(1, 2)
('inside a host', 'between hosts', 6250000.0)
"""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import plain
from labkit.arguments import one_of, whole
from labkit.kinds import Kind, LabError, bytes_text, measured, modelled, recorded, seconds_text
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.views.live import Bridge

# When, and how many bytes had come from each host or rack until then, and had gone to it.
Samples = list[tuple[float, dict[str, tuple[int, int]]]]
INTERFACE = "eth0"  # of each host
UNITS = {"kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
NOT_COUNTED = "nothing is counted where links with a rate cannot be had"
CLASSES = ("inside a host", "between hosts", "between racks")


@dataclass(frozen=True)
class Network:
    """Hosts at a switch, or in racks with a switch each and an uplink. Rates are in bit/s."""

    hosts: tuple[int, ...]
    """The host of each rank."""
    rates: tuple[float, ...]
    """Of the link of each host, in each direction."""
    racks: tuple[int, ...]
    """The rack of each host."""
    uplink: float = math.inf
    """The rate of the link of each rack."""

    @staticmethod
    def of(
        ranks: int,
        link: str | None = None,
        hosts: int | None = None,
        links: Mapping[str, str] | None = None,
        racks: int = 1,
        uplink: str | None = None,
    ) -> Network | None:
        """What the keywords of `labkit.cluster` describe; None: ranks without links."""
        if link is None:
            if hosts is not None or links or racks != 1 or uplink is not None:
                raise LabError(
                    'Hosts, racks and links need a rate: give the cluster link="200 Mbit/s", too.'
                )
            return None
        count = whole("hosts", ranks if hosts is None else hosts, at_least=1, at_most=ranks)
        whole("racks", racks, at_least=1, at_most=count)
        names = [f"host {host}" for host in range(count)]
        rates = dict.fromkeys(names, bits(link))
        for name, rate in (links or {}).items():
            rates[one_of("A name in links", name, names)] = bits(rate)
        if (racks > 1) != (uplink is not None):
            raise LabError('Several racks are joined by an uplink: racks=2, uplink="50 Mbit/s".')
        return Network(
            tuple(rank * count // ranks for rank in range(ranks)),
            tuple(rates.values()),
            tuple(host * racks // count for host in range(count)),
            math.inf if uplink is None else bits(uplink),
        )

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of each host."""
        return tuple(f"10.0.{host // 250}.{host % 250 + 1}" for host in range(len(self.rates)))

    def class_of(self, first: int, second: int) -> str:
        """Which links two ranks have between them."""
        one, other = self.hosts[first], self.hosts[second]
        far = self.racks[one] != self.racks[other]
        return CLASSES[2 if far else 1 if one != other else 0]

    def bandwidth(self, first: int, second: int) -> float:
        """Bytes per second on the way between two ranks, without protocol headers."""
        return self.between(self.hosts[first], self.hosts[second]) / 8

    def between(self, one: int, other: int) -> float:
        """The rate of the slowest link between two hosts, in bit/s."""
        if one == other:
            return math.inf
        far = self.racks[one] != self.racks[other]
        return min(self.rates[one], self.rates[other], self.uplink if far else math.inf)

    def __str__(self) -> str:
        on = [[r for r, at in enumerate(self.hosts) if at == h] for h in range(len(self.rates))]
        ranks = ", ".join(f"{o[0]}–{o[-1]}" if len(o) > 1 else f"{o[0]}" for o in on)
        plural = "s" if len(self.hosts) > 1 else ""
        where = f"{len(on)} host{'s' if len(on) > 1 else ''} with rank{plural} {ranks}"
        same = len(set(self.rates)) == 1
        rates = rate_words(self.rates[:1] if same else self.rates)
        if count := max(self.racks):
            up = rate_words([self.uplink])
            return f"{where} in {count + 1} racks; links of {rates}, uplinks of {up}"
        return f"{where} at one switch; links of {rates}"


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
        """From samples; bytes are counted from the first."""
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
        """From and to "host 0" or "rack 0" in the whole run, with the headers of the protocols."""
        if not self.sent:
            raise LabError(f"No bytes of {name}: {NOT_COUNTED}.")
        one_of("The name of a link", name, tuple(self.sent))
        return self.sent[name][-1], self.received[name][-1]

    def save(self, path: str | Path) -> Path:
        """Write it to a file; `labkit.cluster.replay(path)` shows it again."""
        return plain.write(path, self)

    def player(self) -> Any:
        """Hosts and links over time: play it, or go to a moment."""
        from labkit.views.traffic import player

        return player(self)

    def figure(self) -> Any:
        """Hosts and links as a picture: as thick as they were used."""
        from labkit.views.traffic import traffic

        return traffic(self)

    def table(self) -> Any:
        """Each link with its rate, its bytes and its use."""
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
        """From and to it: the share of its rate, while a link carried 5 % of its rate or more."""
        seconds = 0.0
        for before, now in pairwise(range(len(self.times))):
            took = self.times[now] - self.times[before]
            if any(
                one[now] - one[before] >= 0.05 * self._rate(link) / 8 * took
                for counts in (self.sent, self.received)
                for link, one in counts.items()
            ):
                seconds += took
        most = self._rate(name) / 8 * max(seconds, 1e-9)
        sent, received = self.bytes(name)
        return (sent / most, received / most) if seconds else (0.0, 0.0)

    def _rate(self, name: str) -> float:
        kind, number = name.split()
        return self.network.rates[int(number)] if kind == "host" else self.network.uplink


def replay(path: str | Path) -> Any:
    """The links of a run that was saved: `c.traffic().save(path)`."""
    found = plain.read(path, Traffic, "the traffic of a cluster's links")
    return replace(found, kind=recorded(found.kind.source, found.when)).player()


class LinksPanel:
    """What the links carry in all runs of a block, live while ranks run, and then to be played.

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
        """All that was counted until now: `.player()` and `.save(path)`."""
        return Traffic.of(self.network, self._samples)

    def show(self) -> None:
        """In a notebook: a picture that moves while ranks run."""
        from labkit.views.live import Bridge, publish, shows_live
        from labkit.views.traffic import packed, page

        data = {"text/plain": repr(self)}
        if shows_live():
            self._bridge = Bridge(self._key, lambda: packed(self.traffic))
            empty = replace(self.traffic, kind=measured(f"this machine, {self.network}"))
            data["text/html"] = page(empty, key=self._key, live=True)
        publish((data, {}), self._key)

    def add(self, when: float, counts: dict[str, tuple[int, int]]) -> None:
        """A sample, as the fork server sends them."""
        from labkit.views.traffic import row, source

        self._samples.append((when, counts))
        if self._bridge is not None:
            (start, first), lines = self._samples[0], [] if self._samples[1:] else [source(counts)]
            moved = [[now - then for now, then in zip(counts[name], first[name], strict=True)]
                     for name in counts]  # fmt: skip
            self._bridge.send(",".join([*lines, row(when - start, moved)]))

    def close(self) -> None:
        """Nothing more comes: what was counted stays, to be played."""
        from labkit.views.live import publish

        if self._bridge is not None:
            self._bridge.close("the block has ended")
        if self._samples:
            shown = self.traffic.player()._repr_mimebundle_()
            publish(shown if isinstance(shown, tuple) else (shown, {}), self._key, update=True)

    def __repr__(self) -> str:
        return f"Panel of {self.network}"


def bits(rate: str) -> float:
    """Bits per second of a rate in words.

    >>> bits("200 Mbit/s"), bits("2.5 Gbit/s")
    (200000000.0, 2500000000.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([kMG]bit/s)", str(rate).strip())
    value = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 1e5 <= value <= 1e10:
        raise LabError(
            f'A rate is written like "200 Mbit/s" or "1 Gbit/s", from 100 kbit/s to 10 Gbit/s; '
            f"got {rate!r}."
        )
    return value


def rate_words(rates: Sequence[float]) -> str:
    """Rates in the unit of the largest.

    >>> rate_words([2e8, 5e7]), rate_words([2.5e9])
    ('200, 50 Mbit/s', '2.5 Gbit/s')
    """
    unit = next((u for u, size in reversed(UNITS.items()) if max(rates) >= size), "kbit/s")
    return f"{', '.join(f'{rate / UNITS[unit]:g}' for rate in rates)} {unit}"
