"""Programs of N ranks that exchange messages: run here, then drawn, proved, timed and compared.

>>> from labkit import collectives
>>> trace = collectives.run(collectives.programs.ring_all_reduce, ranks=4)
>>> trace.steps, bool(trace.check("all_reduce"))
(6, True)

Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.collectives import bench, known_links, programs, topology
    from labkit.collectives.check import Verdict
    from labkit.collectives.communicator import Request, Status
    from labkit.collectives.costs import compare_costs, cost, crossover
    from labkit.collectives.formulas import formula
    from labkit.collectives.messages import ANY_SOURCE, ANY_TAG, PROC_NULL
    from labkit.collectives.mpi.run import run_mpi
    from labkit.collectives.records import Call, Message, Place, Source, State, Values
    from labkit.collectives.trace import Trace, run

# Where each name lives; a name alone is a module.
_NAMES = {
    "ANY_SOURCE": "messages",
    "ANY_TAG": "messages",
    "Call": "records",
    "Message": "records",
    "PROC_NULL": "messages",
    "Place": "records",
    "Request": "communicator",
    "Source": "records",
    "State": "records",
    "Status": "communicator",
    "Trace": "trace",
    "Values": "records",
    "Verdict": "check",
    "bench": None,
    "compare_costs": "costs",
    "cost": "costs",
    "crossover": "costs",
    "formula": "formulas",
    "known_links": None,
    "programs": None,
    "run": "trace",
    "run_mpi": "mpi.run",
    "topology": None,
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
    "topology",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit.collectives' has no attribute {name!r}")
    module = _NAMES[name]
    if module is None:
        return importlib.import_module(f"labkit.collectives.{name}")
    value = globals()[name] = getattr(importlib.import_module(f"labkit.collectives.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
