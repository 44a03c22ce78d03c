"""Time all-reduces on this machine: by whom, with how many ranks, for which sizes.

>>> bench = measure(ranks=4, sizes="1k:16M")            # doctest: +SKIP
>>> bench.fit("ring_all_reduce")                        # doctest: +SKIP
ring_all_reduce: α = 30.4 µs, B = 3.18 GB/s. Half of the medians are within 12.2 % of the model; ...
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from labkit.arguments import number, one_of, whole
from labkit.collectives.bench.rank import MARK, time_mpi, time_tensorflow, time_torch
from labkit.collectives.bench.results import MOST_RANKS, Bench, Timing
from labkit.collectives.formulas import find_program
from labkit.collectives.mpi.run import mpiexec, run_mpi
from labkit.collectives.programs import ALL_REDUCES
from labkit.kinds import LabError, measured
from labkit.progress import progress

__all__ = ["main", "measure", "sizes_of"]

Contender: TypeAlias = str | Callable[..., Any]

# What is not named here is a program, or MPI's own.
LIBRARIES = {
    "tensorflow_hierarchical": "tensorflow", "tensorflow_ring": "tensorflow",
    "gloo": "torch", "nccl": "torch",
}  # fmt: skip
PROGRAMS = {"mpi4py": time_mpi, "tensorflow": time_tensorflow, "torch": time_torch}
USUAL = (
    *("mpi", "ring_all_reduce", "tree_all_reduce"),
    *("recursive_doubling_all_reduce", "rabenseifner_all_reduce", *LIBRARIES),
)


def measure(
    *,
    ranks: int = 4,
    sizes: str | Sequence[int] = "1k:16M",
    contenders: Sequence[Contender] = USUAL,
    rounds: int = 10,
    seconds_per_size: float = 2.0,
    timeout: float = 300.0,
) -> Bench:
    """Time the all-reduce of float32 buffers on this machine, as nccl-tests does.

    Contenders: `"mpi"` (the MPI library's own), labkit's programs by their name, your own
    `program(comm, buffer)`, `"tensorflow_hierarchical"`, `"tensorflow_ring"`, `"gloo"`, `"nccl"`.
    Those of MPI are interleaved in one mpiexec. What is not installed is left out, and the result
    says so. Each library has `timeout` seconds.
    """
    plan = {
        "ranks": whole("ranks", ranks, at_least=2, at_most=MOST_RANKS),
        "sizes": sizes_of(sizes),
        "rounds": whole("rounds", rounds, at_least=1),
        "seconds_per_size": number("seconds_per_size", seconds_per_size, at_least=0),
    }
    own: dict[str, Callable[..., Any]] = {}
    groups: dict[str, list[str]] = {}
    left_out: dict[str, str] = {}
    for one in contenders:
        name = one if isinstance(one, str) else find_program(one)[0]
        if callable(one) and name not in ALL_REDUCES:
            own[name] = one
        else:
            one_of("contender", name, ("mpi", *ALL_REDUCES, *LIBRARIES))
        library = LIBRARIES.get(name, "mpi4py")
        if why := _reason_missing(name, library, ranks):
            left_out[name] = why
        else:
            # torch.distributed has one library in a process group.
            groups.setdefault(name if library == "torch" else library, []).append(name)
    if not groups:
        reasons = dict.fromkeys(left_out.values())
        raise LabError(f"No contender can be timed here. {' '.join(reasons)}")
    timings: list[Timing] = []
    libraries: dict[str, str] = {}
    with progress("timing all-reduces", total=len(groups)) as advance:
        for done, names in enumerate(groups.values()):
            advance(done)
            found = _run({**plan, "contenders": names}, own, timeout)
            timings += [Timing(name, n, c, tuple(s), w) for name, n, c, s, w in found["timings"]]
            libraries |= dict.fromkeys(names, found["library"])
    from labkit.hardware.survey import machine_text

    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    when = datetime.now().astimezone().isoformat(timespec="seconds")
    kind = measured(f"{ranks} ranks on {machine_text()}")
    return Bench(ranks, tuple(timings), libraries, left_out, cores, when, kind)


def _reason_missing(name: str, library: str, ranks: int) -> str:
    """Why it cannot be timed here, in a sentence; nothing if it can."""
    try:
        mpiexec()  # it starts the ranks of all libraries
    except LabError as fault:
        return str(fault)
    if importlib.util.find_spec(library) is None:
        return f"{library} is not installed here: pip install {library}."
    if name == "nccl":
        from labkit.hardware.survey import survey

        gpus = len(survey().gpus)
        if gpus < ranks:
            return f"nccl needs a GPU for each rank: {ranks} ranks, and this machine has {gpus}."
    return ""


def _run(
    plan: dict[str, Any], own: dict[str, Callable[..., Any]], timeout: float
) -> dict[str, Any]:
    """Time the contenders of one library, in processes that are gone afterwards."""
    library = LIBRARIES.get(plan["contenders"][0], "mpi4py")
    ranks = 1 if library == "tensorflow" else plan["ranks"]  # its replicas are in one process
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            run_mpi(PROGRAMS[library], ranks=ranks, timeout=timeout, plan=plan, own=own)
    except LabError as fault:
        names = ", ".join(plan["contenders"])
        raise LabError(
            f"{names}: {fault} Try programs of your own with collectives.run first."
        ) from None
    text = printed.getvalue().partition(MARK)[2]
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    return found


def sizes_of(sizes: str | Sequence[int]) -> list[int]:
    """Bytes: several numbers, or a range as text that doubles; as in nccl-tests, 1k is 1024.

    >>> sizes_of("1k:8k")
    [1024, 2048, 4096, 8192]
    """
    if isinstance(sizes, str):
        found = re.findall(r"(\d+)([kmg]?)", sizes.lower())
        if not re.fullmatch(r"\d+[kmg]?(:\d+[kmg]?)?", sizes.lower()):
            raise LabError(
                "sizes must be a size or a range with k, M or G (1k is 1024 bytes), such as "
                f"'1k:16M', got {sizes!r}."
            )
        ends = [int(count) << {"": 0, "k": 10, "m": 20, "g": 30}[unit] for count, unit in found]
        sizes = [ends[0] << i for i in range(40) if ends[0] << i <= ends[-1]]
    # Whole elements of 4 bytes.
    checked = {whole("sizes", size, at_least=4, at_most=4 << 30) // 4 * 4 for size in sizes}
    if not checked:
        raise LabError('sizes must name at least one, such as sizes="1k:16M", got none.')
    return sorted(checked)


def main(arguments: Any) -> int:
    """`labkit bench collectives`: measure, print the table, write the file; 1 if it was wrong."""
    path: Path | None = arguments.json
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        # Before the minutes are spent.
        raise LabError(f"--json must be a file in a folder that exists, got {str(path)!r}.")
    named = arguments.contenders
    bench = measure(
        ranks=arguments.ranks,
        sizes=arguments.sizes or ("1k:1M" if arguments.quick else "1k:16M"),
        contenders=named.replace(" ", "").split(",") if named else USUAL,
        rounds=5 if arguments.quick else 20,
        seconds_per_size=0.5 if arguments.quick else 4.0,
        timeout=60.0 if arguments.quick else 600.0,
    )
    if path is not None:
        bench.save(path)
    print(bench)
    return 0 if bench.correct else 1
