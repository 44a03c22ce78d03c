"""The tools that labkit is measured against, in an environment of their own: .venv/peers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "requirements"))

import beside

__all__ = ["peers_are_there", "peers_python"]


def peers_are_there() -> bool:
    """Whether nothing has to be loaded."""
    return beside.is_there("peers")


def peers_python(left_out: str) -> Path | None:
    """The Python of the peers' environment, made now if it is not there; None if it cannot be."""
    if why := beside.install("peers"):
        print(f"  The peers cannot be installed: {why}.\n  So {left_out} left out.", flush=True)
        return None
    return beside.python_of("peers")
