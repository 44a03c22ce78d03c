"""Launchers that rest between two cells of a notebook, so that the second one finds them warm."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from labkit.cluster.launching import Launcher
from labkit.kinds import LabError

__all__ = ["in_a_kernel", "key_of", "put", "send_away", "take"]

SECONDS = 600.0
# Libraries read these when they are loaded, which the launcher does: it must have had the same.
READ_AT_LOADING = ("TF_", "KERAS_", "CUDA", "XLA_", "NVIDIA_", "LD_", "PYTHON", "MKL_", "JAX_")
_resting: dict[tuple[Any, ...], Launcher] = {}


def in_a_kernel() -> bool:
    """Whether this is a notebook's kernel, where another cell may come."""
    kernel = sys.modules.get("ipykernel.zmqshell")
    return kernel is not None and bool(kernel.ZMQInteractiveShell.initialized())


def key_of(network: str, changed: Mapping[str, str | None]) -> tuple[Any, ...]:
    """Two clusters with the same key can have the same launcher."""
    environment = {**os.environ, **changed}
    read = sorted(
        (name, value) for name, value in environment.items() if name.startswith(READ_AT_LOADING)
    )
    return (os.getpid(), network, sys.executable, tuple(read))


def take(key: tuple[Any, ...]) -> Launcher | None:
    """A launcher that rests and is warm for such a cluster."""
    launcher = _resting.pop(key, None)
    if launcher is not None and launcher.answers():
        return launcher
    if launcher is not None:
        launcher.close()
    return None


def put(key: tuple[Any, ...], launcher: Launcher) -> None:
    """Let a launcher rest for ten minutes. Only one rests: each holds a copy of TensorFlow."""
    send_away()
    try:
        launcher.send("rest", SECONDS)
    except LabError:
        launcher.close()
    else:
        _resting[key] = launcher


def send_away() -> None:
    """End all launchers that rest."""
    while _resting:
        _, launcher = _resting.popitem()
        launcher.close()
