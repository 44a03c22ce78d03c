"""The links of a cluster, live: hosts and cables, as thick as they are used while ranks run.

>>> with labkit.cluster(ranks=4, link="100 Mbit/s") as c:    # doctest: +SKIP
...     c.panel()
...     c.run(train)
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from labkit.cluster.links import Network, Samples, Traffic
from labkit.kinds import measured

if TYPE_CHECKING:
    from labkit.views.live import Bridge


class LinksPanel:
    """What the links carry in all runs of a block. It is shown where it is made."""

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
