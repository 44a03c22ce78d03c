"""The device panel as a piece of HTML: a recording, or the live panel of a kernel.

A recording is inside as its own lines, as they are in a file and in the messages of a live panel.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from labkit.telemetry.columns import Series
from labkit.telemetry.metrics import METRICS
from labkit.telemetry.page.panel_figure import figure
from labkit.views.embed import embedded, gzipped

if TYPE_CHECKING:
    from labkit.telemetry.recording import Recording
    from labkit.views.figure import Picture

MOST_NUMBERS = 600_000  # an hour of eight GPUs is then two megabytes


def page(
    recording: Recording | None,
    *,
    key: str,
    alt: str,
    png: bytes | None = None,
    stamp: str,
    title: str = "",
    ended: str | None = None,
    shown: Sequence[str] | None = None,
    address: Mapping[str, str] | None = None,
) -> str:
    """Returns HTML that shows a recording, or without a recording the live panel `key`.

    `stamp` says where the numbers are from, `alt` in words what there is to see, `ended` why a live
    recording has ended, `shown` which metrics are seen at first, and `address` where the live panel
    is in the kernel.
    """
    options = {
        "live": recording is None, "stamp": stamp, "title": title, "alt": alt, "ended": ended,
        "shown": shown, "address": address,
        "metrics": {name: metric._asdict() for name, metric in METRICS.items() if metric.colours},
    }  # fmt: skip
    if recording is not None:
        options |= {"data": packed(recording), "damage": recording.damage}
    return embedded("panel", options, key=key, alt=alt, png=png)


def drawn(
    recording: Recording, key: str | None = None, ended: str | None = None,
    shown: Sequence[str] | None = None,
) -> tuple[Picture, str]:  # fmt: skip
    """Returns the picture of a recording, and HTML that takes the place of the live panel `key`."""
    picture = figure(recording, shown)
    # Two outputs of one page must not share a panel.
    key = key or f"replay-{secrets.token_hex(6)}"
    return picture, page(
        recording, key=key, alt=picture.alt, png=picture.png, stamp=str(recording.kind),
        title=recording.title, ended=ended, shown=shown,
    )  # fmt: skip


def packed(recording: Recording, *, users: bool = False) -> str:
    """Returns what the page needs of a recording as base64, with `users` also their login names."""
    columns = sum(rows.values[:1].size for rows in recording.series)
    most = MOST_NUMBERS // max(columns, 1)
    thinned = tuple(_thinned(rows, most) for rows in recording.series)
    return gzipped(f"[{','.join(replace(recording, series=thinned).lines(users=users))}]")


def _thinned(series: Series, most: int) -> Series:
    """Returns at most so many rows: the minimum and maximum of each column in every block."""
    import numpy as np

    times, values = series.times, series.values
    if len(times) <= most:
        return series
    size = -(-len(times) // (most // 2))
    rest = len(times) // size * size
    blocks = values[:rest].reshape(-1, size, *values.shape[1:])  # (blocks, size, devices, metrics)
    pairs = np.stack([np.fmin.reduce(blocks, axis=1), np.fmax.reduce(blocks, axis=1)], axis=1)
    moments = times[:rest].reshape(-1, size)[:, [size // 4, 3 * size // 4]]
    return replace(
        series,
        times=np.concatenate([moments.ravel(), times[rest:]]),
        values=np.concatenate([pairs.reshape(-1, *values.shape[1:]), values[rest:]]),
    )
