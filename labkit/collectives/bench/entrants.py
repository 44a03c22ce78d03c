"""Who can be timed, where each is measured, and why one may have to be left out."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from labkit.collectives.programs import MEANING
from labkit.kinds import LabError

__all__ = ["Asked", "Entrant", "entrants", "missing"]

Asked: TypeAlias = str | Callable[..., Any]

_TENSORFLOW = ("tensorflow_one_device", "tensorflow_hierarchical", "tensorflow_ring")
_TORCH = ("gloo", "nccl")
# What torch.distributed is asked for: the others need buffers of another shape.
_OF_TORCH = ("all_reduce", "broadcast", "reduce")
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
class Entrant:
    """A contender by name, the module that measures it, and a program of yours, packed."""

    name: str
    place: str
    packed: str | None = None


def entrants(collective: str, asked: Sequence[Asked] | None) -> tuple[Entrant, ...]:
    """Those asked for, or the usual ones."""
    if isinstance(asked, str) or callable(asked):
        asked = (asked,)
    known = _known(collective)
    if asked is None:
        asked = _USUAL if collective == "all_reduce" else known
    made = tuple(_entrant(one, collective, known) for one in asked)
    names = [one.name for one in made]
    if not names or len(set(names)) < len(names):
        raise LabError(
            f"Contenders are {', '.join(names) or 'missing'}: give at least one, and each once."
        )
    return made


def missing(entrant: Entrant, ranks: int) -> str:
    """Why it cannot be timed here, in a sentence; nothing if it can."""
    if entrant.place == "mpi_ranks":
        from labkit.collectives.mpi import mpiexec

        try:
            mpiexec()
        except LabError as fault:
            return str(fault)
        return ""
    library = "tensorflow" if entrant.place == "tensorflow_devices" else "torch"
    if importlib.util.find_spec(library) is None:
        return f"{library} is not installed here: pip install {library}."
    if entrant.name == "nccl":
        from labkit.hardware.survey import survey

        gpus = len(survey().gpus)
        if gpus < ranks:
            return f"nccl needs a GPU for each rank: {ranks} ranks, and this machine has {gpus}."
    return ""


def _known(collective: str) -> tuple[str, ...]:
    programs = tuple(name for name, meaning in MEANING.items() if meaning == collective)
    tensorflow = _TENSORFLOW if collective == "all_reduce" else ()
    return ("mpi", *programs, *tensorflow, *(_TORCH if collective in _OF_TORCH else ()))


def _entrant(one: Asked, collective: str, known: Sequence[str]) -> Entrant:
    if callable(one):
        name = str(getattr(one, "__name__", "program"))
        if name in known:
            # labkit's own by itself, or yours by the same name: the table must tell them apart.
            from labkit.collectives import programs

            if getattr(programs, name, None) is one:
                return Entrant(name, "mpi_ranks")
            name = f"your {name}"
        from labkit.collectives.shipping import pack

        return Entrant(name, "mpi_ranks", base64.b64encode(pack(one)).decode("ascii"))
    if one not in known:
        raise LabError(
            f"{one!r} does no {collective} here. There is: {', '.join(known)}; "
            "or give your own program(comm, buffer)."
        )
    if one in _TENSORFLOW:
        return Entrant(one, "tensorflow_devices")
    return Entrant(one, "torch_ranks" if one in _TORCH else "mpi_ranks")
