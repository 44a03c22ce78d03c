"""Programs of N ranks that exchange messages: run here, then drawn, proved, priced and timed.

>>> from labkit import collectives
>>> trace = collectives.run(collectives.programs.ring_all_reduce, ranks=4)
>>> trace.steps, bool(trace.check("all_reduce"))
(6, True)

Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.collectives import bench, known_links, programs, topologies
    from labkit.collectives.communicator import ANY_SOURCE, ANY_TAG, PROC_NULL, Request, Status
    from labkit.collectives.cost_lines import compare_costs
    from labkit.collectives.crossings import crossover
    from labkit.collectives.formulas import formula
    from labkit.collectives.mpi import run_mpi
    from labkit.collectives.running import run
    from labkit.collectives.schedules import cost
    from labkit.collectives.trace import Call, Message, Place, Source, State, Trace, Values
    from labkit.collectives.verdict import Verdict

# Where each name lives; a name alone is a module.
_NAMES = {
    "ANY_SOURCE": "communicator",
    "ANY_TAG": "communicator",
    "Call": "trace",
    "Message": "trace",
    "PROC_NULL": "communicator",
    "Place": "trace",
    "Request": "communicator",
    "Source": "trace",
    "State": "trace",
    "Status": "communicator",
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
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and name in ("ANY_SOURCE", "ANY_TAG", "PROC_NULL"):
        return getattr(mpi, name)  # the same program runs there; the simulation knows both
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit.collectives' has no attribute {name!r}")
    module = _NAMES[name]
    if module is None:
        return importlib.import_module(f"labkit.collectives.{name}")
    value = globals()[name] = getattr(importlib.import_module(f"labkit.collectives.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
