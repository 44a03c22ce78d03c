"""Samples of devices over time, with spans: what a panel has seen, or what a file holds."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.kinds import Kind, LabError, seconds_text
from labkit.telemetry.counters import SUMS
from labkit.telemetry.lines import (
    Header,
    Span,
    cost_line,
    end_line,
    header_line,
    source_line,
    span_line,
    state_line,
)
from labkit.telemetry.metrics import Device, State

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from labkit.telemetry.use import SpanTable
    from labkit.views.figure import Picture

    Numbers = NDArray[np.float64]

__all__ = ["Recording", "Series"]

_LONG = 1_000_000  # values; two minutes of eight GPUs are a tenth of that
_CHUNK = 2000  # rows that are written at a time


@dataclass(frozen=True, eq=False, repr=False)
class Series:
    """All rows of one source: `values` is rows × devices × metrics, and NaN where there is none."""

    source: str
    metrics: tuple[str, ...]
    devices: tuple[Device, ...]
    times: Numbers
    values: Numbers
    thinned: bool = False
    """Old rows stand for several: they hold the extremes of them."""

    def __repr__(self) -> str:
        return f"Series({self.source}, {len(self.devices)} devices, {len(self.times)} rows)"

    def column(self, device: str, metric: str) -> Numbers | None:
        """One number a row, NaN where there is none; None if there is no such column."""
        keys = [one.key for one in self.devices]
        if device not in keys or metric not in self.metrics:
            return None
        column: Numbers = self.values[:, keys.index(device), self.metrics.index(metric)]
        return column


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """Name it in a cell to see its panel; `table()` says what each span used."""

    kind: Kind
    header: Header
    series: tuple[Series, ...]
    spans: tuple[Span, ...] = ()
    states: tuple[State, ...] = ()
    seconds: float = 0.0
    cost: float | None = None
    """CPU seconds that the sampler has used."""
    damage: str | None = None
    """What is wrong with the file that it was read from, in a sentence."""
    file: Path | None = None
    """What it was read from."""
    # A table asks for the same columns for every span.
    _known: dict[tuple[str, str], tuple[Numbers, Numbers]] = field(default_factory=dict, init=False)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """Everything that has gauges, parts included."""
        return tuple(device for one in self.series for device in one.devices)

    @cached_property
    def counted(self) -> tuple[Device, ...]:
        """What a table has a row for: the GPUs and their slices; without any, the processor."""
        gpus = tuple(one for one in self.devices if one.sort in ("gpu", "mig"))
        return gpus or tuple(one for one in self.devices if one.sort == "cpu")

    def of(self, device: str) -> tuple[Series, ...]:
        """Where a device is looked at."""
        return self._series_of.get(device, ())

    @cached_property
    def _series_of(self) -> dict[str, tuple[Series, ...]]:
        found: dict[str, tuple[Series, ...]] = {}
        for one in self.series:
            for device in one.devices:
                found[device.key] = (*found.get(device.key, ()), one)
        return found

    def said_of(self, device: str, metric: str) -> tuple[State, ...]:
        """What became of a metric of a device, or of a source, in order."""
        return self._states_of.get((device, metric), ())

    @cached_property
    def _states_of(self) -> dict[tuple[str, str], tuple[State, ...]]:
        found: dict[tuple[str, str], list[State]] = {}
        for state in self.states:
            found.setdefault((state.device, state.metric), []).append(state)
        return {key: tuple(states) for key, states in found.items()}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What holds for a whole source at the end: that there is no driver, or a broken one."""
        keys = {one.key for one in self.devices}
        newest: dict[tuple[str, str], State] = {}
        for state in self.states:
            if state.device not in keys and not state.metric:
                newest[state.device, state.says if state.why == "note" else ""] = state
        said = [one.says for one in newest.values() if one.why != "fine" and one.says]
        return tuple(dict.fromkeys(said))

    def column(self, device: str, metric: str) -> tuple[Numbers, Numbers]:
        """Times and values of one metric of one device, without what is missing."""
        import numpy as np

        if (device, metric) not in self._known:
            self._known[device, metric] = np.empty(0), np.empty(0)
            for one in self.series:
                found = one.column(device, metric)
                if found is not None:
                    known = ~np.isnan(found)
                    self._known[device, metric] = one.times[known], found[known]
                    break
        return self._known[device, metric]

    def table(self) -> SpanTable:
        """What each span used: time, utilisation, memory, energy."""
        from labkit.telemetry.use import table

        return table(self)

    def figure(self) -> Picture:
        """All of it as one picture."""
        from labkit.views.telemetry_figure import figure

        return figure(self)

    def save(self, path: str | Path) -> None:
        """Write it to a file that `labkit.replay` and `labkit replay` read. All of it, or nothing:
        a file that was there before stays until the new one is complete.
        """
        target = _target(path, self.file)
        # A name of its own: with the target's in it, it could be too long.
        unfinished = target.parent / f".labkit-{os.getpid()}-{secrets.token_hex(4)}.part"
        try:
            # What cannot be written in UTF-8, as half of a character, becomes a question mark.
            with unfinished.open("x", encoding="utf-8", errors="replace", newline="\n") as out:
                for line in self.lines():
                    out.write(line + "\n")
            unfinished.replace(target)
        except OSError as fault:
            raise _unwritable(path, fault.strerror or str(fault)) from fault
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def lines(self) -> Iterator[str]:
        """The lines of its file; several rows come as one text with line ends in it."""
        yield header_line(self.header)
        for number, one in enumerate(self.series):
            yield from _series_lines(number, one)
        for state in self.states:
            yield state_line(state, 0.0)
        for span in self.spans:
            yield span_line(span)
        if self.cost is not None:
            yield cost_line(self.seconds, self.cost)
        if self.damage is None:
            yield end_line(self.seconds)

    def __repr__(self) -> str:
        devices, spans = len(self.devices), len(self.spans)
        return (
            f"Recording({devices} device{'s' * (devices != 1)}, {seconds_text(self.seconds)}, "
            f"{spans} span{'s' * (spans != 1)}, {self.kind})"
        )

    def __str__(self) -> str:
        return str(self.table())

    def _ipython_display_(self) -> None:
        """A long recording is shown at once, and its still picture, which takes a while, added."""
        from labkit.telemetry import notebook

        if self._values < _LONG or notebook.still() or not notebook.in_kernel():
            raise NotImplementedError  # IPython then asks for the formats, all together
        shown = key = f"replay-{secrets.token_hex(6)}"
        alt = f"{self!r}. Its picture is still being drawn."
        notebook.publish({"text/plain": repr(self), "text/html": self._page(key, alt)}, shown)
        notebook.publish(self._repr_mimebundle_(key=key), shown, update=True)

    @property
    def _values(self) -> int:
        return sum(one.values.size for one in self.series)

    def _repr_mimebundle_(
        self, key: str | None = None, **_: object
    ) -> tuple[dict[str, str], dict[str, dict[str, object]]]:
        picture = self.figure()
        data = {
            "text/plain": str(self),
            "image/png": base64.b64encode(picture.png).decode("ascii"),
        }
        if os.environ.get("LABKIT_PICTURES") != "still":
            data["text/html"] = self.html(picture, key)
        return data, {"image/png": {"width": picture.width, "alt": picture.alt}}

    def html(self, picture: Picture | None = None, key: str | None = None) -> str:
        """The live panel of it, as a piece of a page that needs nothing else."""
        picture = picture or self.figure()
        # Two outputs of one page must not share a panel.
        return self._page(key or f"replay-{secrets.token_hex(6)}", picture.alt, picture.png)

    def _page(self, key: str, alt: str, png: bytes | None = None) -> str:
        from labkit.views.panel_page import page

        return page(self, key=key, live=False, alt=alt, png=png, stamp=self.stamp)

    @property
    def stamp(self) -> str:
        """Where its numbers come from: what a replay has written on it all the time."""
        if self.kind.name == "recorded":
            return f"recorded on {self.header.where} at {self.header.when[:16].replace('T', ' ')}"
        return str(self.kind)


def _target(path: str | Path, source: Path | None) -> Path:
    """The file behind a name: new, or one that may be replaced."""
    try:
        # A link stays a link: what it leads to is replaced.
        target = Path(path).resolve()
        if target.is_dir():
            raise _unwritable(path, "It is a folder, and the recording needs a name in it")
        if target.exists() and not target.is_file():
            raise _unwritable(path, "It is a device or a pipe, and no file")
        if source is not None and target.exists() and source.exists() and target.samefile(source):
            raise _unwritable(path, "It is the file that this recording is read from")
    except (OSError, RuntimeError, ValueError) as fault:  # links in a circle; a null character
        raise _unwritable(path, getattr(fault, "strerror", None) or str(fault)) from fault
    return target


def _unwritable(path: str | Path, why: str) -> LabError:
    return LabError(
        f"The recording cannot be written to {str(path)!r}: {why.rstrip('.')}. "
        "Give a new name in a folder that exists and is yours, and save again."
    )


def _series_lines(number: int, one: Series) -> Iterator[str]:
    """The source and its rows. Sums are written only where the rows no longer give them."""
    import json

    import numpy as np

    sums = {name for pair in SUMS.values() for name in pair}
    kept = [i for i, name in enumerate(one.metrics) if one.thinned or name not in sums]
    yield source_line(one.source, [one.metrics[i] for i in kept], one.devices)
    for start in range(0, len(one.times), _CHUNK):
        rows = slice(start, start + _CHUNK)
        values = np.round(one.values[rows][:, :, kept], 4).tolist()
        times = np.round(one.times[rows], 4).tolist()
        made = [[number, time, *row] for time, row in zip(times, values, strict=True)]
        text = json.dumps(made, separators=(",", ":"))
        # Python writes 95.0 and NaN where a recording has 95 and null.
        text = text.replace("NaN", "null").replace(".0,", ",").replace(".0]", "]")
        between = "]]" if one.devices else "]"
        yield text[1:-1].replace(f"{between},[", f"{between}\n[")
