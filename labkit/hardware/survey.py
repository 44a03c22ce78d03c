"""One look at the whole machine: `labkit.hardware()`."""

from __future__ import annotations

from functools import cache

from labkit.hardware.parts import Hardware
from labkit.kinds import bytes_text, measured

__all__ = ["machine_text", "survey"]


def survey() -> Hardware:
    """What is here now; nothing is guessed, and what could not be asked is in `notes`."""
    from labkit.hardware import cgroup, host, nvml

    allowed = cgroup.limits()
    driver = nvml.read()
    return Hardware(
        system=host.system_text(),
        cores=host.read_cores(allowed),
        memory=host.read_memory(allowed),
        driver=driver.version,
        driver_state=driver.state,
        gpus=driver.gpus,
        links=driver.links,
        notes=driver.notes,
        kind=measured("this machine"),
    )


@cache
def machine_text() -> str:
    """The machine in one line, for the facts beside a measurement. It never fails.

    >>> machine_text()                                    # doctest: +SKIP
    'AMD EPYC, 2 cores, 25.2 GB, no GPU'
    """
    try:
        here = survey()
    except Exception as fault:  # noqa: BLE001
        # A measurement must not be lost because a driver or a container is odd.
        return f"a machine that could not be asked ({type(fault).__name__})"
    cores = f"{here.cores.usable} core{'s' if here.cores.usable != 1 else ''}"
    return f"{here.cores.name}, {cores}, {bytes_text(here.memory.total)}, {_gpus_text(here)}"


def _gpus_text(here: Hardware) -> str:
    names = [gpu.name or "unknown GPU" for gpu in here.gpus]
    counted = [
        f"{names.count(name)} × {name}" if names.count(name) > 1 else name
        for name in dict.fromkeys(names)
    ]
    return ", ".join(counted) or "no GPU"
