"""The device panel as a piece of HTML: a recording, or the live panel of a kernel.

A recording is inside as its own lines, as they are in a file and in the messages of a live panel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from labkit.views.embed import embedded, gzipped

MODULES = ("page", "panel_data", "panel_reload", "panel_draw", "panel")
MOST_NUMBERS = 600_000  # an hour of eight GPUs is then two megabytes


def page(
    recording: Any | None,
    *,
    key: str,
    live: bool,
    metrics: Mapping[str, Any],
    alt: str,
    png: bytes | None = None,
    stamp: str,
    title: str = "",
    ended: str | None = None,
    shown: Sequence[str] | None = None,
    address: Mapping[str, str] | None = None,
) -> str:
    """A piece of HTML that shows a recording, or the live panel `key`, in lanes of these metrics.

    `stamp` says where the numbers are from, `alt` in words what is there to see, `ended` why a live
    recording has ended, `shown` which metrics are seen at first, `address` where a live
    one is in the kernel.
    """
    options = {"live": live, "stamp": stamp, "title": title, "alt": alt, "ended": ended}
    options |= {"shown": shown, "address": address}
    options["metrics"] = {name: one._asdict() for name, one in metrics.items() if one.colours}
    if recording is not None:
        options |= {"data": packed(recording), "damage": recording.damage}
    return embedded("panel", MODULES, options, key=key, alt=alt, png=png)


def packed(recording: Any, *, users: bool = False) -> str:
    """Everything that the page needs of a recording, as base64; with the names of other users?"""
    columns = sum(one.values[:1].size for one in recording.series)
    most = MOST_NUMBERS // max(columns, 1)
    thinned = tuple(_thinned(one, most) for one in recording.series)
    return gzipped(f"[{','.join(replace(recording, series=thinned).lines(users=users))}]")


def _thinned(series: Any, most: int) -> Any:
    """At most so many rows: of every block, the lowest and the highest of each column."""
    import numpy as np

    times, values = series.times, series.values
    if len(times) <= most:
        return series
    size = -(-len(times) // (most // 2))
    rest = len(times) // size * size
    blocks = values[:rest].reshape(-1, size, *values.shape[1:])
    pairs = np.stack([np.fmin.reduce(blocks, axis=1), np.fmax.reduce(blocks, axis=1)], axis=1)
    moments = times[:rest].reshape(-1, size)[:, [size // 4, 3 * size // 4]]
    return replace(
        series,
        times=np.concatenate([moments.ravel(), times[rest:]]),
        values=np.concatenate([pairs.reshape(-1, *values.shape[1:]), values[rest:]]),
    )
