"""What you ask for: which collective, who does it, with how many ranks, and how much of it.

>>> bench = measure(ranks=4, sizes="1k:16M")            # doctest: +SKIP
>>> bench.fit("ring_all_reduce")                        # doctest: +SKIP
Fit(ring_all_reduce: α = 61.2 µs, B = 1.81 GB/s)
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.collectives.bench.conversation import converse
from labkit.collectives.bench.entrants import Asked, Entrant, entrants, missing
from labkit.collectives.bench.rates import COLLECTIVES, sizes_of
from labkit.collectives.bench.results import Bench, timings_of
from labkit.kinds import LabError
from labkit.progress import progress

__all__ = ["measure"]

DTYPES = ("float32", "float64", "int32", "int64")
MOST_RANKS = 64


def measure(
    collective: str = "all_reduce",
    *,
    ranks: int = 4,
    sizes: str | int | Sequence[int] = "1k:16M",
    contenders: Sequence[Asked] | None = None,
    dtype: str = "float32",
    rounds: int = 10,
    warmup: int = 3,
    seconds_per_size: float = 2.0,
    deadline: float = 300.0,
) -> Bench:
    """Time a collective on this machine, as nccl-tests does.

    Contenders: `"mpi"` (the MPI library's own), labkit's programs by their name, your own
    `program(comm, buffer)`, `"tensorflow_one_device"`, `"tensorflow_hierarchical"`,
    `"tensorflow_ring"`, `"gloo"`, `"nccl"`. Those of MPI are interleaved in one mpiexec. What is
    not installed is left out, and the result says so. Each library has `deadline` seconds.
    """
    _explain(collective, ranks, dtype, rounds, warmup)
    chosen = entrants(collective, contenders)
    left_out = {one.name: why for one in chosen if (why := missing(one, ranks))}
    todo: dict[tuple[str, str], list[Entrant]] = {}
    for one in chosen:
        if one.name not in left_out:
            # torch.distributed has one library in a process group.
            alone = one.name if one.place == "torch_ranks" else ""
            todo.setdefault((one.place, alone), []).append(one)
    if not todo:
        reasons = " ".join(dict.fromkeys(left_out.values()))
        raise LabError(f"Nothing that was asked for can be timed here. {reasons}")
    plan = {
        "collective": collective, "ranks": ranks, "dtype": dtype, "rounds": rounds,
        "sizes": _whole(sizes_of(sizes), collective, ranks, dtype),
        "warmup": warmup, "seconds_per_size": seconds_per_size, "seed": 1,
    }  # fmt: skip
    busy = _busy()
    records: list[dict[str, object]] = []
    libraries: dict[str, str] = {}
    with progress(f"timing {collective}", total=len(todo)) as advance:
        for done, ((place, _), some) in enumerate(todo.items()):
            found = _ask(place, plan, some, deadline, lambda share: advance(done + share))  # noqa: B023
            records += found["timings"]
            libraries |= dict.fromkeys([one.name for one in some], str(found["library"]))
    return _bench(plan, records, libraries, left_out, busy)


def _ask(
    place: str,
    plan: Mapping[str, Any],
    some: Sequence[Entrant],
    deadline: float,
    advance: Callable[[float], object],
) -> dict[str, Any]:
    """Have the contenders of one place timed, by processes that are gone afterwards."""
    from labkit.collectives.mpi import mpi_environment, mpiexec
    from labkit.collectives.mpi_start import starting

    names = [one.name for one in some]
    environment = {**mpi_environment(), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="labkit-bench-") as folder:
        path = Path(folder) / "plan.json"
        shipped = {one.name: one.packed for one in some if one.packed}
        whole = {
            **plan, "contenders": names, "shipped": shipped, "store": f"{folder}/store",
            "asker": os.getpid(),
        }  # fmt: skip
        path.write_text(json.dumps(whole), encoding="utf-8")
        command = [sys.executable, "-m", f"labkit.collectives.bench.{place}", str(path)]
        if place == "mpi_ranks":
            command = [*starting(mpiexec()), "-n", str(plan["ranks"]), *command]
        copies = plan["ranks"] if place == "torch_ranks" else 1
        loopback = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
        environments = [
            {**environment, **loopback, "RANK": str(rank)} if copies > 1 else environment
            for rank in range(copies)
        ]
        return converse(", ".join(names), [command] * copies, environments, deadline, advance)


def _bench(
    plan: Mapping[str, Any],
    records: list[dict[str, object]],
    libraries: dict[str, str],
    left_out: dict[str, str],
    busy: float | None,
) -> Bench:
    from labkit.hardware.survey import machine_text

    return Bench(
        collective=plan["collective"],
        ranks=plan["ranks"],
        dtype=plan["dtype"],
        timings=timings_of(records),
        libraries=libraries,
        left_out=left_out,
        machine=machine_text(),
        cores=_cores(),
        when=datetime.now().astimezone().isoformat(timespec="seconds"),
        busy=busy,
    )


def _explain(collective: str, ranks: int, dtype: str, rounds: int, warmup: int) -> None:
    if collective not in COLLECTIVES:
        raise LabError(
            f"{collective!r} is no collective that is timed. Take one of {', '.join(COLLECTIVES)}."
        )
    if not isinstance(ranks, int) or not 2 <= ranks <= MOST_RANKS:
        raise LabError(f"ranks={ranks!r} cannot be timed here. Give 2 to {MOST_RANKS}.")
    if dtype not in DTYPES:
        raise LabError(f"dtype={dtype!r} is not timed. Take one of {', '.join(DTYPES)}.")
    if rounds < 1 or warmup < 0:
        raise LabError(
            f"rounds={rounds} and warmup={warmup}: give at least one round, and no negative number."
        )


def _whole(sizes: Sequence[int], collective: str, ranks: int, dtype: str) -> tuple[int, ...]:
    """Sizes that hold whole elements, and equal chunks where the collective needs them."""
    import numpy as np

    each = np.dtype(dtype).itemsize
    if collective in ("all_gather", "reduce_scatter", "all_to_all"):
        each *= ranks
    return tuple(dict.fromkeys(max(each, size // each * each) for size in sizes))


def _cores() -> int:
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _busy() -> float | None:
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None
