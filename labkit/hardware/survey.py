"""What this machine has, in one object: `labkit.hardware()`.

>>> hardware = labkit.hardware()            # doctest: +SKIP
>>> hardware.cores.usable, hardware.gpus    # doctest: +SKIP
(2, ())
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any, Literal

from labkit.hardware.gpus import Gpu, read_gpus
from labkit.hardware.machine import Cores, Memory, limits, read_cores, read_memory
from labkit.kinds import Kind, bytes_text, measured
from labkit.plain import stored

__all__ = ["Hardware", "machine_text", "survey"]


@stored
@dataclass(frozen=True)
class Hardware:
    """What this machine has and what this process may use of it."""

    system: str
    cores: Cores
    memory: Memory
    driver: str | None
    driver_state: Literal["working", "none", "broken"]
    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...]
    kind: Kind

    def __str__(self) -> str:
        width = max(len(title) for title, _ in _rows(self))
        lines = [f"{title:<{width}}  {value}" for title, value in _rows(self)]
        return "\n".join([*lines, *self.notes, str(self.kind)])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from labkit.views.table import table

        html = table((), _rows(self), caption="This machine", footer=str(self.kind), prose=True)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return {"text/plain": str(self), "text/html": html + notes}


def survey() -> Hardware:
    """What is here now; what could not be read is in `notes`."""
    allowed, driver = limits(), read_gpus()
    return Hardware(
        system=f"{platform.system()} {platform.machine()}".strip(),
        cores=read_cores(allowed),
        memory=read_memory(allowed),
        driver=driver.version,
        driver_state=driver.state,
        gpus=driver.gpus,
        notes=driver.notes,
        kind=measured("this machine"),
    )


@cache
def machine_text() -> str:
    """The machine in one line, for the facts beside a measurement.

    >>> machine_text()                      # doctest: +SKIP
    'AMD EPYC, 2 cores, 25.2 GB, no GPU'
    """
    here = survey()
    cores = here.cores.usable
    names = [gpu.name for gpu in here.gpus]
    gpus = [
        f"{names.count(name)} × {name}" if names.count(name) > 1 else name
        for name in dict.fromkeys(names)
    ]
    return (
        f"{here.cores.name}, {cores} core{'s' if cores != 1 else ''}, "
        f"{bytes_text(here.memory.total)}, {', '.join(gpus) or 'no GPU'}"
    )


def _rows(hardware: Hardware) -> list[tuple[str, str]]:
    rows = [
        ("System", hardware.system),
        ("Processor", hardware.cores.name),
        ("Cores", _cores_text(hardware.cores)),
        ("Memory", _memory_text(hardware.memory)),
    ]
    if hardware.driver:
        rows.append(("NVIDIA driver", hardware.driver))
    gpus = [(f"GPU {gpu.index}", _gpu_text(gpu)) for gpu in hardware.gpus]
    return rows + (gpus or [("GPUs", "none")])


def _cores_text(cores: Cores) -> str:
    physical = "" if cores.physical is None else f"{cores.physical} physical, "
    text = f"{physical}{cores.logical} logical; this process may use {cores.usable}"
    return f"{text} (time for {cores.quota:g})" if cores.quota is not None else text


def _memory_text(memory: Memory) -> str:
    text = f"{bytes_text(memory.total)}, {bytes_text(memory.available)} available"
    return f"{text}, limited to {bytes_text(memory.limit)}" if memory.limit is not None else text


def _gpu_text(gpu: Gpu) -> str:
    size = "memory unknown" if gpu.memory_total is None else bytes_text(gpu.memory_total)
    used = "" if gpu.memory_used is None else f", {bytes_text(gpu.memory_used)} used"
    words = {True: "", False: ", hidden by CUDA_VISIBLE_DEVICES", None: ", perhaps hidden"}
    return f"{gpu.name}, {size}{used}{words[gpu.visible]}"
