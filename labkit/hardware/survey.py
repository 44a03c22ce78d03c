"""What this machine has, in one object: `labkit.hardware()`.

>>> hardware = labkit.hardware()            # doctest: +SKIP
>>> hardware.cores.usable, hardware.gpus    # doctest: +SKIP
(2, ())
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from labkit.hardware.gpus import Driver, Gpu, names_text, read_gpus
from labkit.hardware.machine import Cores, Memory, limits, read_cores, read_memory
from labkit.kinds import bytes_text, measured
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.views.table import Table


@dataclass(frozen=True, repr=False)
class Hardware(ShownAsTable):
    """What this machine has and what this process may use of it."""

    system: str
    cores: Cores
    memory: Memory
    driver: Driver

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the driver reports."""
        return self.driver.gpus

    def table(self) -> Table:
        """Returns a row for each fact."""
        from labkit.views.table import Table

        cores, memory = self.cores, self.memory
        quota = "" if cores.quota is None else f" (time for {cores.quota:g})"
        limit = "" if memory.limit is None else f", limited to {bytes_text(memory.limit)}"
        used = f"{bytes_text(memory.total)}, {bytes_text(memory.available)} available{limit}"
        rows = [
            ("System", self.system),
            ("Processor", cores.name),
            ("Cores", f"{cores.logical} logical; this process may use {cores.usable}{quota}"),
            ("Memory", used),
        ]
        if self.driver.version:
            rows.append(("NVIDIA driver", self.driver.version))
        gpus = [(f"GPU {gpu.index}", _gpu_text(gpu)) for gpu in self.gpus]
        rows += gpus or [("GPUs", "none")]
        footer = "\n".join([*self.driver.notes, str(measured("this machine"))])
        return Table((), rows, "This machine", footer, prose=True)


def _gpu_text(gpu: Gpu) -> str:
    size = "memory unknown" if gpu.memory_total is None else bytes_text(gpu.memory_total)
    used = "" if gpu.memory_used is None else f", {bytes_text(gpu.memory_used)} used"
    return f"{gpu.name}, {size}{used}{'' if gpu.visible else ', hidden by CUDA_VISIBLE_DEVICES'}"


def survey() -> Hardware:
    """Returns what is here now; what could not be read is in the driver's notes."""
    allowed = limits()
    system = f"{platform.system()} {platform.machine()}"
    return Hardware(system, read_cores(allowed), read_memory(allowed), read_gpus())


@cache
def machine_text() -> str:
    """Returns the machine in one line, for the facts beside a measurement.

    >>> machine_text()                      # doctest: +SKIP
    'AMD EPYC, 2 cores, 25.2 GB, no GPU'
    """
    here = survey()
    cores = f"{here.cores.usable} core{'s' if here.cores.usable != 1 else ''}"
    gpus = names_text(here.gpus) or "no GPU"
    return f"{here.cores.name}, {cores}, {bytes_text(here.memory.total)}, {gpus}"
