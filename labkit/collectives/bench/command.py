"""`labkit bench collectives`: the same as `collectives.bench.measure`, from a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.collectives.bench.asking import measure
from labkit.kinds import LabError

__all__ = ["main"]

SIZES, QUICK_SIZES = "1k:16M", "1k:1M"


def main(asked: Any) -> int:
    """Measure, print the table, write the file; 1 if a result was wrong."""
    path: Path | None = asked.json
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        # Said before the minutes are spent.
        raise LabError(f"{path} is a folder, or lies in none. Give a file in a folder that exists.")
    contenders = asked.contenders.replace(" ", "").split(",") if asked.contenders else None
    bench = measure(
        asked.collective,
        ranks=asked.ranks,
        sizes=asked.sizes or (QUICK_SIZES if asked.quick else SIZES),
        contenders=contenders,
        rounds=5 if asked.quick else 20,
        seconds_per_size=0.5 if asked.quick else 4.0,
        deadline=60.0 if asked.quick else 600.0,
    )
    if path is not None:
        bench.save(path)
    print(bench)
    return 0 if bench.correct else 1
