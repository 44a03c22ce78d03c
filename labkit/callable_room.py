"""Rooms that are called: `labkit.hardware()`, `labkit.cluster(...)`, `labkit.strategies()`.

The name of such a room means the package and its function. Without this, it would mean one of the
two, whichever was imported last.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(room: str, function: Callable[..., Any]) -> None:
    """From now on a call of this package calls the function."""

    class Room(ModuleType):
        __call__ = staticmethod(function)

    sys.modules[room].__class__ = Room
