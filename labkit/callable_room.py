"""Rooms that are called: `labkit.hardware()`, `labkit.cluster(...)`, `labkit.strategies()`.

The name of such a room means the package and its function. Without this, it would mean one of the
two, whichever was imported last.
"""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from labkit.arguments import near
from labkit.kinds import LabError


def make_callable(room: str, function: Callable[..., Any]) -> None:
    """From now on a call of this package calls the function."""
    known = inspect.signature(function).parameters

    @wraps(function, updated=())
    def call(*values: Any, **keywords: Any) -> Any:
        for name in keywords.keys() - known:
            raise LabError(f"{room} takes no argument {name!r}.{near(name, known)}")
        return function(*values, **keywords)

    class Room(ModuleType):
        __call__ = staticmethod(call)

    sys.modules[room].__class__ = Room
