"""What all benchmarks share: --quick, --json FILE, one row per result, a table at the end.

>>> print(table([Row("epoch", "plain Keras", 7.4, 7.1, 7.7)]))
what   against      ratio   interval
epoch  plain Keras  7.40×  7.10–7.70

A benchmark has a function `results(quick) -> list[Row]`, and ends with
`sys.exit(main(results, __doc__))`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Row", "main", "table"]


@dataclass(frozen=True)
class Row:
    """One result: a ratio above 1 where labkit is better, and the interval around it."""

    what: str
    against: str
    ratio: float
    low: float
    high: float


def main(results: Callable[[bool], list[Row]], about: str | None) -> int:
    """Run a benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute on 2 cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    chosen = parser.parse_args()
    if chosen.json is not None and (chosen.json.is_dir() or not chosen.json.parent.is_dir()):
        parser.error(f"{chosen.json} is a folder, or lies in none")
    rows = results(chosen.quick)
    if chosen.json is not None:
        content = {"results": [asdict(row) for row in rows]}
        chosen.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print("\n" + table(rows), flush=True)
    return 0


def table(rows: Iterable[Row]) -> str:
    """The rows as text; ratios above 1 mean that labkit is better."""
    lines = [("what", "against", "ratio", "interval")]
    lines += [
        (row.what, row.against, f"{_digits(row.ratio)}×", f"{_digits(row.low)}–{_digits(row.high)}")
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    shown = []
    for line in lines:
        left = f"{line[0]:<{widths[0]}}  {line[1]:<{widths[1]}}"
        shown.append(f"{left}  {line[2]:>{widths[2]}}  {line[3]:>{widths[3]}}")
    return "\n".join(shown)


def _digits(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"
