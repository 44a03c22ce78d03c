"""Hosts and the links between them: which rank is on which host, and the rate of each link.

>>> two = Network.of(4, hosts=2, link="200 Mbit/s", links={"host 1": "50 Mbit/s"})
>>> print(two)
2 hosts with ranks 0–1, 2–3 at one switch; links of 200, 50 Mbit/s
>>> two.class_of(0, 1), two.class_of(1, 2), two.bandwidth(1, 2)
('inside a host', 'between hosts', 6250000.0)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.arguments import one_of, whole
from labkit.kinds import LabError

INTERFACE = "eth0"  # of each host
UNITS = {"kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
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
        """Returns what the keywords of `labkit.cluster` describe, or None without links."""
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
        """Returns the class of the links between two ranks."""
        here, there = self.hosts[first], self.hosts[second]
        far = self.racks[here] != self.racks[there]
        return CLASSES[2 if far else 1 if here != there else 0]

    def bandwidth(self, first: int, second: int) -> float:
        """Returns bytes per second between two ranks, not counting protocol headers."""
        return self.between(self.hosts[first], self.hosts[second]) / 8

    def between(self, here: int, there: int) -> float:
        """Returns the rate of the slowest link between two hosts, in bit/s."""
        if here == there:
            return math.inf
        far = self.racks[here] != self.racks[there]
        return min(self.rates[here], self.rates[there], self.uplink if far else math.inf)

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


def bits(rate: str) -> float:
    """Returns the bits per second of a rate in words.

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
    """Returns rates in the unit of the largest rate.

    >>> rate_words([2e8, 5e7]), rate_words([2.5e9])
    ('200, 50 Mbit/s', '2.5 Gbit/s')
    """
    unit = next((u for u, size in reversed(UNITS.items()) if max(rates) >= size), "kbit/s")
    return f"{', '.join(f'{rate / UNITS[unit]:g}' for rate in rates)} {unit}"
