"""Who can be timed, by which backend, and why one may have to be left out."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from labkit.arguments import one_of
from labkit.collectives.formulas import program_name
from labkit.collectives.mpi.launch import mpiexec
from labkit.collectives.programs import MEANING
from labkit.kinds import LabError
from labkit.shipping import pack_program

__all__ = ["Contender", "Named", "contenders_of", "reason_missing"]

Named: TypeAlias = str | Callable[..., Any]

_TENSORFLOW = ("tensorflow_one_device", "tensorflow_hierarchical", "tensorflow_ring")
_TORCH = ("gloo", "nccl")
_BY_TORCH = ("all_reduce", "broadcast", "reduce")  # the others need buffers of another shape
_USUAL = (
    "mpi",
    "ring_all_reduce",
    "tree_all_reduce",
    "recursive_doubling_all_reduce",
    "rabenseifner_all_reduce",
    "tensorflow_hierarchical",
    "tensorflow_ring",
    *_TORCH,
)


@dataclass(frozen=True)
class Contender:
    """A name, the backend that runs it, and a program of your own, packed."""

    name: str
    backend: str
    packed: str | None = None


def contenders_of(collective: str, named: Sequence[Named] | None) -> tuple[Contender, ...]:
    """Those that were named, or the usual ones."""
    programs = tuple(name for name, meaning in MEANING.items() if meaning == collective)
    tensorflow = _TENSORFLOW if collective == "all_reduce" else ()
    known = ("mpi", *programs, *tensorflow, *(_TORCH if collective in _BY_TORCH else ()))
    if named is None:
        named = _USUAL if collective == "all_reduce" else known
    elif isinstance(named, str) or callable(named):
        named = (named,)
    made = tuple(_contender(one, known) for one in named)
    names = [one.name for one in made]
    if not names or len(set(names)) < len(names):
        raise LabError(f"contenders must be named once each, got {', '.join(names) or 'none'}.")
    return made


def _contender(one: Named, known: Sequence[str]) -> Contender:
    name = program_name(one)
    if callable(one) and name not in known:
        packed = base64.b64encode(pack_program(one)).decode("ascii")
        return Contender(name, "mpi", packed)
    one_of("contender", name, known)
    backend = "tensorflow" if name in _TENSORFLOW else "torch" if name in _TORCH else "mpi"
    return Contender(name, backend)


def reason_missing(contender: Contender, ranks: int) -> str:
    """Why it cannot be timed here, in a sentence; nothing if it can."""
    if contender.backend == "mpi":
        try:
            mpiexec()
        except LabError as fault:
            return str(fault)
        return ""
    if importlib.util.find_spec(contender.backend) is None:
        return f"{contender.backend} is not installed here: pip install {contender.backend}."
    if contender.name == "nccl":
        from labkit.hardware.survey import survey

        gpus = len(survey().gpus)
        if gpus < ranks:
            return f"nccl needs a GPU for each rank: {ranks} ranks, and this machine has {gpus}."
    return ""
