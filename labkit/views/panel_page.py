"""The device panel as a piece of HTML: a recording, or the live panel of a kernel.

A recording is packed as text: columns in whole steps of their own range, their differences, gzip
and base64. An hour of eight GPUs is about two megabytes. `panel_data.mjs` undoes it.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from labkit.views.embed import document, embedded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["MODULES", "MOST_ROWS", "SHOWN", "document", "packed", "page"]

# Each before those that use it: joined in this order they are one program.
MODULES = ("page", "panel_data", "panel_draw", "panel")
# What a panel has lanes for. Counters and sums are for tables.
SHOWN = (
    "utilisation", "sm_activity", "memory_activity", "memory", "process_memory", "power",
    "temperature", "clock",
)  # fmt: skip
MOST_ROWS = 40_000
# A lane is 56 pixels high: steps need not be finer, and coarser where there is much to send.
FINE_STEPS, COARSE_STEPS = 4000, 250
MANY_VALUES = 400_000
TICKS = 10_000  # time is kept to a tenth of a millisecond, as in the lines of a recording


def page(
    recording: Any | None,
    *,
    key: str,
    live: bool,
    alt: str,
    png: bytes | None = None,
    stamp: str,
    title: str = "",
    ended: str | None = None,
) -> str:
    """A piece of HTML that shows a recording, or the live panel `key`.

    `stamp` says where the numbers are from, `alt` in words what is there to see, `ended` why a live
    recording has ended.
    """
    options = {"live": live, "stamp": stamp, "title": title, "alt": alt, "ended": ended}
    options |= {"key": key, "data": None if recording is None else packed(recording)}
    return embedded("panel", MODULES, options, key=key, alt=alt, png=png)


def packed(recording: Any) -> str:
    """Everything that the page needs of a recording, as base64."""
    blob = bytearray()
    about = {
        "header": asdict(recording.header),
        "sources": [_source(series, blob) for series in recording.series],
        "spans": [asdict(span) for span in recording.spans],
        "states": [asdict(state) for state in recording.states],
        "seconds": float(recording.seconds),
        "damage": recording.damage,
    }
    text = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
    # No time in the file: the same recording is the same bytes.
    whole = gzip.compress(struct.pack("<I", len(text)) + text + bytes(blob), 6, mtime=0)
    return base64.b64encode(whole).decode("ascii")


def _source(series: Any, blob: bytearray) -> dict[str, Any]:
    import numpy as np

    times, values = np.asarray(series.times, dtype=float), np.asarray(series.values, dtype=float)
    names = [name for _ in series.devices for name in series.metrics]
    times, columns = _thinned(times, values.reshape(len(times), len(names)))
    _put(blob, np.rint(times * TICKS).astype(np.int64), 4)
    steps = FINE_STEPS if columns.size <= MANY_VALUES else COARSE_STEPS
    ranges: list[tuple[float | None, float | None]] = []
    for name, column in zip(names, columns.T, strict=True):
        known = np.isfinite(column)
        if name not in SHOWN or not known.any():  # it keeps its place: live rows follow
            ranges.append((None, None))
            continue
        low, high = float(column[known].min()), float(column[known].max())
        # 0 is no number, else 1 + steps above the lowest
        codes = np.where(known, 1 + np.rint((column - low) * (steps / (high - low or 1.0))), 0)
        _put(blob, codes.astype(np.int64), 2)
        ranges.append((low, high))
    return {
        "source": series.source,
        "metrics": series.metrics,
        "devices": [asdict(device) for device in series.devices],
        "rows": len(times),
        "steps": steps,
        "ranges": ranges,
    }


def _put(blob: bytearray, numbers: Array, width: int) -> None:
    """Differences, modulo what `width` bytes hold: all low bytes first, for gzip's sake."""
    import numpy as np

    differences = np.diff(numbers, prepend=0)
    for place in range(width):
        blob += ((differences >> (8 * place)) & 0xFF).astype("uint8").tobytes()


def _thinned(times: Array, columns: Array) -> tuple[Array, Array]:
    """At most as many rows as a page can use: of every block, each column's lowest and highest."""
    import numpy as np

    if len(times) <= MOST_ROWS:
        return times, columns
    size = -(-len(times) // (MOST_ROWS // 2))
    rest = len(times) // size * size
    blocks = columns[:rest].reshape(-1, size, columns.shape[1])
    pairs = np.stack([np.fmin.reduce(blocks, axis=1), np.fmax.reduce(blocks, axis=1)], axis=1)
    moments = times[:rest].reshape(-1, size)[:, [size // 4, 3 * size // 4]]
    return (
        np.concatenate([moments.ravel(), times[rest:]]),
        np.concatenate([pairs.reshape(-1, columns.shape[1]), columns[rest:]]),
    )
