"""The picture and the page of traffic: hosts at their switch, links as thick as their use."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from labkit.kinds import bytes_text
from labkit.views.embed import Player, embedded, gzipped
from labkit.views.figure import Picture
from labkit.views.sketch import Box, Sketch

if TYPE_CHECKING:
    from labkit.cluster.links.network import Network
    from labkit.cluster.links.traffic import Traffic

LEFT, TOP, PITCH = 24.0, 96.0, 92.0
BOX, SWITCH = 130.0, 80.0
THICKEST = 20.0
MIDDLES, WORDS = (25.0, 47.0), (7.0, 65.0)  # of the two bands of a link, and of their numbers
FILLS = ("#BFD9EC", "#F6D9B8")  # tints of blue and orange: they differ in lightness, too


def traffic(found: Traffic) -> Picture:
    """Returns the picture of a `labkit.cluster.Traffic`."""
    words = "; ".join(
        f"{name} sent {bytes_text(sent)} and received {bytes_text(received)}"
        for name in found.sent
        for sent, received in [found.bytes(name)]
    )
    alt = f"Bytes on each link, {found.kind}: {words or 'none'}."
    return board(found).picture(alt)


def player(found: Traffic) -> Player:
    """Returns a player of a `labkit.cluster.Traffic`, with a slider, buttons and keys."""
    still = cache(found.picture)

    def html() -> str:
        return page(found, key=uuid.uuid4().hex, live=False, png=still().png)

    return Player(title(found.network), still().alt, still, html)


def page(found: Traffic, *, key: str, live: bool, png: bytes | None = None) -> str:
    """Returns HTML that shows samples of the links, or the live samples of `key`."""
    network, alt = found.network, "Hosts and links, live. Drawn while ranks run."
    alt = alt if live else traffic(found).alt
    racks = max(network.racks) + 1
    on = [[r for r, at in enumerate(network.hosts) if at == h] for h in range(len(network.rates))]
    links = [{"name": f"host {h}", "rate": rate} for h, rate in enumerate(network.rates)]
    if racks > 1:
        links += [{"name": f"rack {rack}", "rate": network.uplink} for rack in range(racks)]
    options = {
        "title": title(network), "stamp": str(found.kind), "alt": alt, "live": live,
        "racks": racks, "links": links,
        "hosts": [
            {"name": f"host {h}", "rack": rack, "ranks": on[h]}
            for h, rack in enumerate(network.racks)
        ],
    }  # fmt: skip
    if not live:
        options["data"] = packed(found)
    return embedded("traffic", options, key=key, alt=alt, png=png)


def title(network: Network) -> str:
    """Returns the title."""
    return f"Traffic of {len(network.rates)} hosts"


def packed(found: Traffic) -> str:
    """Returns the samples as lines of a recording, for the page."""
    rows = [
        row(when, [(found.sent[name][at], found.received[name][at]) for name in found.sent])
        for at, when in enumerate(found.times)
    ]
    return gzipped(f"[{','.join([source(found.sent), *rows] if found.sent else [])}]")


def source(names: Iterable[str]) -> str:
    """Returns the line that says what the other lines hold."""
    devices = [{"key": name} for name in names]
    return json.dumps({"source": "links", "metrics": ["sent", "received"], "devices": devices})


def row(when: float, counts: Iterable[Sequence[int]]) -> str:
    """Returns the line of a sample: the bytes from and to each link so far."""
    return json.dumps([0, round(when, 3), *counts])


def board(found: Traffic) -> Sketch:
    """Returns the drawing: hosts in rows, and racks with a switch and an uplink to its right."""
    hosts = [f"host {host}" for host in range(len(found.network.rates))]
    racks = sorted({*found.network.racks})
    long = 380.0 if len(racks) == 1 else 205.0
    drawn = Sketch(
        title(found.network),
        TOP + PITCH * len(hosts) + 10,
        "Upper band: sent by the host. Lower band: received. Thickness: use of the rate.",
        kind=found.kind,
    )
    for number, name in enumerate(hosts):
        on = [str(rank) for rank, host in enumerate(found.network.hosts) if host == number]
        top = TOP + PITCH * number
        label = f"{name}\nrank{'s' * (len(on) > 1)} {', '.join(on)}"
        drawn.box(LEFT, top, BOX, PITCH - 20, label, size=9)
        _link(drawn, found, name, LEFT + BOX, top, long)
    for rack in racks:
        rows = [row for row, at in enumerate(found.network.racks) if at == rack]
        top, high = TOP + PITCH * rows[0], PITCH * len(rows) - 20
        x = LEFT + BOX + long
        drawn.box(x, top, SWITCH, high, "switch" if len(racks) == 1 else f"rack {rack}", size=9)
        if len(racks) > 1:
            _link(drawn, found, f"rack {rack}", x + SWITCH, top + (high - PITCH + 20) / 2, long)
    if len(racks) > 1:
        x = LEFT + BOX + 2 * long + SWITCH
        drawn.box(x, TOP, SWITCH, PITCH * len(hosts) - 20, "switch", size=9)
    return drawn


def _link(drawn: Sketch, found: Traffic, name: str, x: float, top: float, long: float) -> None:
    """Draw two bands, for bytes from and to a host or rack, or a line if nothing was counted."""
    if name not in found.sent:
        middle = top + (PITCH - 20) / 2
        drawn.line((x, middle), (x + long, middle), dashed=True)
        drawn.text(x + long / 2, middle - 12, "not counted", size=8.5, align="center")
        return
    for way, (share, arrow) in enumerate(zip(found.use(name), "→←", strict=True)):
        middle = top + MIDDLES[way]
        band = Box(x, middle - THICKEST * share / 2, long, max(1.6, THICKEST * share))
        drawn.rectangle(band, FILLS[way], level=1)
        words = f"{arrow} {bytes_text(found.bytes(name)[way])}, {100 * share:.0f} %"
        drawn.text(x + long / 2, top + WORDS[way], words, size=8.5, align="center")
