"""A recording as a few hundred kilobytes of text, for the page that shows it.

Columns are brought to whole steps of their own range, then only the differences are kept, then
gzip and base64: an hour of eight GPUs is about two megabytes. `panel_data.mjs` undoes it.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["MOST_ROWS", "SHOWN", "packed"]

# What a panel has lanes for. Counters and sums are for tables.
SHOWN = (
    "utilisation", "sm_activity", "memory_activity", "memory", "process_memory", "power",
    "temperature", "clock", "pcie", "nvlink",
)  # fmt: skip
MOST_ROWS = 40_000
# A lane is 56 pixels high: steps need not be finer. Where there is much to send, a byte a value.
FINE_STEPS, COARSE_STEPS = 4000, 250
MANY_VALUES = 400_000
TICKS = 10_000  # time is kept to a tenth of a millisecond, as in the lines of a recording


def packed(recording: Any) -> str:
    """Everything that the page needs of a recording, as base64."""
    blob = bytearray()
    about = {
        "header": asdict(recording.header),
        "sources": [_source(series, blob) for series in recording.series],
        "spans": [asdict(span) for span in recording.spans],
        "states": [asdict(state) for state in recording.states],
        "seconds": float(recording.seconds),
        # CPU seconds of the sampler for each second
        "cost": recording.cost / recording.seconds
        if recording.cost is not None and recording.seconds
        else None,
        "damage": recording.damage,
    }
    text = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
    # No time in the file: the same recording is the same bytes.
    whole = gzip.compress(struct.pack("<I", len(text)) + text + bytes(blob), 6, mtime=0)
    return base64.b64encode(whole).decode("ascii")


def _source(series: Any, blob: bytearray) -> dict[str, Any]:
    import numpy as np

    kept = [i for i, name in enumerate(series.metrics) if name in SHOWN]
    times, values = np.asarray(series.times, dtype=float), np.asarray(series.values, dtype=float)
    width = len(series.devices) * len(kept)
    times, columns = _thinned(times, values[:, :, kept].reshape(len(times), width))
    _put(blob, np.rint(times * TICKS).astype(np.int64), 4)
    wide = columns.size <= MANY_VALUES
    steps = FINE_STEPS if wide else COARSE_STEPS
    ranges: list[tuple[float | None, float | None]] = []
    for column in columns.T:
        known = np.isfinite(column)
        if not known.any():
            ranges.append((None, None))
            continue
        low, high = float(column[known].min()), float(column[known].max())
        # 0 is no number, else 1 + steps above the lowest
        codes = np.where(known, 1 + np.rint((column - low) * (steps / (high - low or 1.0))), 0)
        _put(blob, codes.astype(np.int64), 2 if wide else 1)
        ranges.append((low, high))
    return {
        "source": series.source,
        "metrics": [series.metrics[i] for i in kept],
        "devices": [asdict(device) for device in series.devices],
        "rows": len(times),
        "bytes": 2 if wide else 1,
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
    blocks = len(times) // size
    rest = blocks * size
    cut = columns[:rest].reshape(blocks, size, -1)
    low, high = np.fmin.reduce(cut, axis=1), np.fmax.reduce(cut, axis=1)
    low_first = np.where(np.isnan(cut), np.inf, cut).argmin(axis=1) <= np.where(
        np.isnan(cut), -np.inf, cut
    ).argmax(axis=1)
    pairs = np.stack([np.where(low_first, low, high), np.where(low_first, high, low)], axis=1)
    moments = times[:rest].reshape(blocks, size)[:, [size // 4, (3 * size) // 4]].ravel()
    pairs = pairs.reshape(2 * blocks, -1)
    return np.concatenate([moments, times[rest:]]), np.concatenate([pairs, columns[rest:]])
