"""`labkit bench collectives`: the same as `collectives.bench.measure`, from a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.collectives.bench.measurement import measure
from labkit.kinds import LabError

__all__ = ["main"]

SIZES, QUICK_SIZES = "1k:16M", "1k:1M"


def main(arguments: Any) -> int:
    """Measure, print the table, write the file; 1 if a result was wrong."""
    path: Path | None = arguments.json
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        # Before the minutes are spent.
        raise LabError(f"--json must be a file in a folder that exists, got {str(path)!r}.")
    contenders = arguments.contenders.replace(" ", "").split(",") if arguments.contenders else None
    bench = measure(
        arguments.collective,
        ranks=arguments.ranks,
        sizes=arguments.sizes or (QUICK_SIZES if arguments.quick else SIZES),
        contenders=contenders,
        rounds=5 if arguments.quick else 20,
        seconds_per_size=0.5 if arguments.quick else 4.0,
        deadline=60.0 if arguments.quick else 600.0,
    )
    if path is not None:
        bench.save(path)
    print(bench)
    return 0 if bench.correct else 1
