"""N ranks as processes, and a program that runs on all of them: here, under MPI, under Slurm.

>>> import labkit
>>> with labkit.cluster(ranks=4) as c:         # doctest: +SKIP
...     c.run(program)
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from labkit.cluster.block import Cluster
from labkit.cluster.failures import RankError
from labkit.cluster.going import Going
from labkit.cluster.outcome import Outcome
from labkit.cluster.output import Line
from labkit.cluster.rank import ThisRank
from labkit.cluster.scripts import batch_script
from labkit.cluster.session import SlurmSession, slurm_session

__all__ = [
    "Cluster",
    "Going",
    "Line",
    "Outcome",
    "RankError",
    "SlurmSession",
    "ThisRank",
    "batch_script",
    "cool",
    "slurm_session",
    "this_rank",
]


def this_rank() -> ThisRank:
    """In a program that a cluster runs: which rank this is, and where the others are."""
    return ThisRank.here()


def cool() -> None:
    """End the process that a notebook keeps warm for its next cluster."""
    from labkit.cluster.resting import send_away

    send_away()


class _Room(ModuleType):
    """A module that can be called: students write `labkit.cluster(ranks=4)`."""

    def __call__(self, ranks: int | None = None, engine: str = "local", **keywords: Any) -> Cluster:
        """Ranks for a `with` block; the keywords are those of Cluster."""
        return Cluster(ranks, engine, **keywords)


sys.modules[__name__].__class__ = _Room
