"""Time collectives on this machine: which one, by whom, with how many ranks, for which sizes.

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

from labkit.arguments import number, one_of, whole
from labkit.collectives.bench.bandwidth import COLLECTIVES, sizes_of
from labkit.collectives.bench.contenders import Contender, Named, contenders_of, reason_missing
from labkit.collectives.bench.expected import MOST_RANKS
from labkit.collectives.bench.protocol import collect
from labkit.collectives.bench.results import Bench, Timing
from labkit.collectives.mpi.gforker import command_for
from labkit.collectives.mpi.launch import environment, mpiexec
from labkit.kinds import LabError
from labkit.progress import progress

__all__ = ["measure"]

DTYPES = ("float32", "float64", "int32", "int64")


def measure(
    collective: str = "all_reduce",
    *,
    ranks: int = 4,
    sizes: str | int | Sequence[int] = "1k:16M",
    contenders: Sequence[Named] | None = None,
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
    one_of("collective", collective, COLLECTIVES)
    one_of("dtype", dtype, DTYPES)
    plan = {
        "collective": collective, "dtype": dtype, "seed": 1,
        "ranks": whole("ranks", ranks, at_least=2, at_most=MOST_RANKS),
        "sizes": _whole_chunks(sizes_of(sizes), collective, ranks, dtype),
        "rounds": whole("rounds", rounds, at_least=1), "warmup": whole("warmup", warmup),
        "seconds_per_size": number("seconds_per_size", seconds_per_size, at_least=0),
    }  # fmt: skip
    number("deadline", deadline, above=0)
    chosen = contenders_of(collective, contenders)
    left_out = {one.name: why for one in chosen if (why := reason_missing(one, ranks))}
    groups: dict[tuple[str, str], list[Contender]] = {}
    for one in chosen:
        if one.name not in left_out:
            # torch.distributed has one library in a process group.
            alone = one.name if one.backend == "torch" else ""
            groups.setdefault((one.backend, alone), []).append(one)
    if not groups:
        reasons = " ".join(dict.fromkeys(left_out.values()))
        raise LabError(f"No contender can be timed here. {reasons}")
    load = _load()
    timings: list[Timing] = []
    libraries: dict[str, str] = {}
    with progress(f"timing {collective}", total=len(groups)) as advance:
        for done, group in enumerate(groups.values()):
            found = _run(plan, group, deadline, lambda share: advance(done + share))  # noqa: B023
            timings += [
                Timing(**{**one, "seconds": tuple(one["seconds"])}) for one in found["timings"]
            ]
            libraries |= dict.fromkeys([one.name for one in group], str(found["library"]))
    return _bench(plan, tuple(timings), libraries, left_out, load)


def _run(
    plan: Mapping[str, Any],
    group: Sequence[Contender],
    deadline: float,
    advance: Callable[[float], object],
) -> dict[str, Any]:
    """Time the contenders of one backend, in processes that are gone afterwards."""
    backend, ranks = group[0].backend, plan["ranks"]
    names = [one.name for one in group]
    own = {**environment(), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="labkit-bench-") as folder:
        path = Path(folder) / "plan.json"
        content = {
            **plan, "backend": backend, "contenders": names, "parent": os.getpid(),
            "packed": {one.name: one.packed for one in group if one.packed},
        }  # fmt: skip
        path.write_text(json.dumps(content), encoding="utf-8")
        command = [sys.executable, "-m", "labkit.collectives.bench.rank", str(path)]
        if backend == "mpi":
            command = [*command_for(mpiexec()), "-n", str(ranks), *command]
        environments = [own]
        if backend == "torch":
            loopback = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
            environments = [{**own, **loopback, "RANK": str(rank)} for rank in range(ranks)]
        commands = [command] * len(environments)
        return collect(", ".join(names), commands, environments, deadline, advance)


def _bench(
    plan: Mapping[str, Any],
    timings: tuple[Timing, ...],
    libraries: dict[str, str],
    left_out: dict[str, str],
    load: float | None,
) -> Bench:
    from labkit.hardware.survey import machine_text

    return Bench(
        collective=plan["collective"],
        ranks=plan["ranks"],
        dtype=plan["dtype"],
        timings=timings,
        libraries=libraries,
        left_out=left_out,
        machine=machine_text(),
        cores=_cores(),
        when=datetime.now().astimezone().isoformat(timespec="seconds"),
        load=load,
        _process=os.getpid(),
    )


def _whole_chunks(sizes: Sequence[int], collective: str, ranks: int, dtype: str) -> tuple[int, ...]:
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


def _load() -> float | None:
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None
