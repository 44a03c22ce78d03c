"""Programs of N ranks that exchange messages: run here, then drawn, proved, priced and timed.

>>> from labkit import collectives
>>> trace = collectives.run(collectives.programs.ring_all_reduce, ranks=4)
>>> trace.steps, bool(trace.check("all_reduce"))
(6, True)

Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.collectives import bench, known_links, programs, topologies
    from labkit.collectives.communicator import Request
    from labkit.collectives.cost_lines import compare_costs
    from labkit.collectives.crossings import crossover
    from labkit.collectives.formulas import formula
    from labkit.collectives.mpi import run_mpi
    from labkit.collectives.running import run
    from labkit.collectives.schedules import cost
    from labkit.collectives.statuses import ANY_SOURCE, ANY_TAG, PROC_NULL, Status
    from labkit.collectives.trace import Call, Message, Place, Source, State, Trace, Values
    from labkit.collectives.verdict import Verdict

# Where each name lives; a name alone is a module.
_NAMES = {
    "ANY_SOURCE": "statuses",
    "ANY_TAG": "statuses",
    "Call": "trace",
    "Message": "trace",
    "PROC_NULL": "statuses",
    "Place": "trace",
    "Request": "communicator",
    "Source": "trace",
    "State": "trace",
    "Status": "statuses",
    "Trace": "trace",
    "Values": "trace",
    "Verdict": "verdict",
    "bench": None,
    "compare_costs": "cost_lines",
    "cost": "schedules",
    "crossover": "crossings",
    "formula": "formulas",
    "known_links": None,
    "programs": None,
    "run": "running",
    "run_mpi": "mpi",
    "topologies": None,
}

# What mpiexec of MPICH and of Open MPI tells a rank about itself.
_STARTED_BY_MPIEXEC = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "PROC_NULL",
    "Call",
    "Message",
    "Place",
    "Request",
    "Source",
    "State",
    "Status",
    "Trace",
    "Values",
    "Verdict",
    "bench",
    "compare_costs",
    "cost",
    "crossover",
    "formula",
    "known_links",
    "programs",
    "run",
    "run_mpi",
    "topologies",
]


def __getattr__(name: str) -> Any:
    if name in ("ANY_SOURCE", "ANY_TAG", "PROC_NULL"):
        return _constant(name)  # not kept: MPI may be loaded later
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit.collectives' has no attribute {name!r}")
    module = _NAMES[name]
    if module is None:
        return importlib.import_module(f"labkit.collectives.{name}")
    value = globals()[name] = getattr(importlib.import_module(f"labkit.collectives.{module}"), name)
    return value


def _constant(name: str) -> int:
    """MPI's own number where there is MPI: the simulation knows it as well as ours."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None and any(rank in os.environ for rank in _STARTED_BY_MPIEXEC):
        mpi = importlib.import_module("mpi4py.MPI")  # imports may be sorted, ours before its own
    home = mpi or importlib.import_module("labkit.collectives.statuses")
    return int(getattr(home, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
