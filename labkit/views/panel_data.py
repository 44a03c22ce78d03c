"""A recording as a few hundred kilobytes of text, for the page that shows it.

Columns are brought to whole steps of their own range, then only the differences are kept, then
gzip and base64: an hour of eight GPUs is about two megabytes. `panel_unpack.mjs` undoes it.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["packed"]

# Sums are for the table; what is drawn of them is the reading that they were made from.
COUNTERS = {"energy", "busy_seconds", "covered_seconds", "joules", "powered_seconds"}
MOST_ROWS = 40_000
# A page is 1,000 pixels high at most, so steps need not be finer; where there is a lot to send, a
# byte for each value is still one pixel of a lane.
FINE_STEPS, COARSE_STEPS = 4000, 250
MANY_VALUES = 400_000
TICKS = 10_000  # time is kept to a tenth of a millisecond, as in the lines of a recording


def packed(recording: Any) -> str:
    """Everything that the page needs of a recording, as base64."""
    blob = bytearray()
    sources = [_source(series, blob) for series in recording.series]
    about = {
        "header": _plain(recording.header),
        "sources": sources,
        "spans": [_plain(span) for span in recording.spans],
        "states": [_plain(state) for state in recording.states],
        "seconds": float(recording.seconds),
        "cost": _cost(recording),
        "damage": recording.damage,
    }
    text = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
    # No time in the file: the same recording is the same bytes.
    whole = gzip.compress(struct.pack("<I", len(text)) + text + bytes(blob), 6, mtime=0)
    return base64.b64encode(whole).decode("ascii")


def _source(series: Any, blob: bytearray) -> dict[str, Any]:
    import numpy as np

    kept = [i for i, name in enumerate(series.metrics) if name not in COUNTERS]
    times = np.asarray(series.times, dtype=float)
    values = np.asarray(series.values, dtype=float)
    devices = len(series.devices)
    values = values.reshape(len(times), devices, len(series.metrics))[:, :, kept]
    columns = values.reshape(len(times), devices * len(kept))
    times, columns = _thinned(times, columns)
    _put(blob, np.diff(np.rint(times * TICKS).astype(np.int64), prepend=0).clip(0), 4)
    wide = columns.size <= MANY_VALUES
    steps = FINE_STEPS if wide else COARSE_STEPS
    ranges = []
    for column in columns.T:
        low, high, codes = _codes(column, steps)
        ranges.append((low, high))
        if low is not None:
            _put(blob, np.diff(codes, prepend=0), 2 if wide else 1)
    return {
        "source": series.source,
        "metrics": [series.metrics[i] for i in kept],
        "devices": [_plain(device) for device in series.devices],
        "rows": len(times),
        "bytes": 2 if wide else 1,
        "steps": steps,
        "ranges": ranges,
    }


def _codes(column: Array, steps: int) -> tuple[float | None, float | None, Array]:
    """Lowest and highest, and the rows: 0 for no number, else 1 + steps above the lowest."""
    import numpy as np

    there = np.isfinite(column)
    codes = np.zeros(len(column), dtype=np.int64)
    if not there.any():
        return None, None, codes
    numbers = column[there]
    low, high = float(numbers.min()), float(numbers.max())
    codes[there] = 1 + np.rint((numbers - low) * (steps / (high - low or 1.0))).astype(np.int64)
    return low, high, codes


def _put(blob: bytearray, numbers: Array, width: int) -> None:
    """Whole numbers, modulo what `width` bytes hold: all low bytes first, for gzip's sake."""
    for place in range(width):
        blob += ((numbers >> (8 * place)) & 0xFF).astype("uint8").tobytes()


def _thinned(times: Array, columns: Array) -> tuple[Array, Array]:
    """Not more rows than a page can use: of every block, each column's lowest and highest."""
    import numpy as np

    rows = len(times)
    if rows <= MOST_ROWS:
        return times, columns
    size = -(-rows // (MOST_ROWS // 2))
    blocks = rows // size
    rest = blocks * size
    cut = columns[:rest].reshape(blocks, size, -1)
    low, high = np.fmin.reduce(cut, axis=1), np.fmax.reduce(cut, axis=1)
    with_low = np.where(np.isnan(cut), np.inf, cut).argmin(axis=1)
    with_high = np.where(np.isnan(cut), -np.inf, cut).argmax(axis=1)
    first = np.where(with_low <= with_high, low, high)
    second = np.where(with_low <= with_high, high, low)
    pairs = np.stack([first, second], axis=1).reshape(2 * blocks, -1)
    moments = times[:rest].reshape(blocks, size)[:, [size // 4, (3 * size) // 4]].ravel()
    return np.concatenate([moments, times[rest:]]), np.concatenate([pairs, columns[rest:]])


def _cost(recording: Any) -> float | None:
    """CPU seconds of the sampler for each second, if known."""
    cost = recording.cost
    return None if cost is None or not recording.seconds else float(cost) / recording.seconds


def _plain(value: Any) -> dict[str, Any]:
    made = asdict(value) if is_dataclass(value) and not isinstance(value, type) else dict(value)
    return {key: one for key, one in made.items() if one is not None}
