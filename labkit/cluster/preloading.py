"""What the launcher should have loaded before it forks the ranks of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

from labkit.kinds import LabError
from labkit.shipping import is_importable, names_used

__all__ = ["explain_preload", "learn", "needed_by"]

# Loaded once in the launcher instead of in every rank. None of them starts threads by itself.
KNOWN = ("numpy", "tensorflow", "keras", "torch")
# Rooms of labkit that load these only when they are used.
ROOMS = {
    "training": ("numpy", "tensorflow", "keras"),
    "strategies": ("numpy", "tensorflow", "keras"),
}
_learned: dict[str, None] = {}


def needed_by(program: Callable[..., Any], asked: Iterable[str] = ()) -> tuple[str, ...]:
    """Modules that the program's code names, and those that earlier ranks had to load.

    >>> def program(rank):
    ...     import numpy as np
    ...     return np.zeros(rank)
    >>> needed_by(program)
    ('numpy',)
    """
    found = dict.fromkeys(asked)
    named: set[str] = set()
    for function in functions_of(program):
        named |= _words(function.__code__)
        if function.__module__.startswith("labkit."):
            named.add(function.__module__.split(".")[1])
        for _, value in names_used(function):
            if isinstance(value, ModuleType):
                named.update(value.__name__.split(".")[:2])
    found |= dict.fromkeys(name for name in KNOWN if name in named)
    for room, modules in ROOMS.items():
        if room in named:
            found |= dict.fromkeys((*modules, f"labkit.{room}"))
    # Only of what this program needs: one of NumPy alone shall not wait for TensorFlow.
    roots = {name.partition(".")[0] for name in found}
    found |= {name: None for name in _learned if name.partition(".")[0] in roots}
    return tuple(found)


def learn(loaded: Iterable[str]) -> None:
    """What a rank had to load itself, the next ones find loaded."""
    loaded = tuple(loaded)
    _learned.update(dict.fromkeys(loaded))


def explain_preload(preload: object) -> tuple[str, ...]:
    """The user's own names of modules."""
    if preload is None:
        return ()
    if isinstance(preload, str) or not isinstance(preload, Iterable):
        raise LabError(f"preload={preload!r} must be names of modules, such as ('tensorflow',).")
    names = tuple(preload)
    for name in names:
        if not isinstance(name, str) or not all(p.isidentifier() for p in name.split(".")):
            raise LabError(f"preload has {name!r}, which is no name of a module.")
    return names


def functions_of(program: Callable[..., Any]) -> Iterator[FunctionType]:
    """The function, and those that it uses and that are of the same hand: its cell or package."""
    home = str(getattr(program, "__module__", "")).partition(".")[0]
    seen: set[int] = set()
    found: list[Any] = [program]
    while found:
        part = found.pop()
        part = part.__func__ if isinstance(part, MethodType) else getattr(part, "func", part)
        if id(part) in seen or not isinstance(part, (FunctionType, type)):
            continue
        seen.add(id(part))
        if part.__module__.partition(".")[0] != home and is_importable(part):
            continue
        if isinstance(part, FunctionType):
            yield part
            found.extend(value for _, value in names_used(part) if callable(value))
        else:
            found.extend(value for value in vars(part).values() if callable(value))


def _words(code: Any) -> set[str]:
    found = {part for name in code.co_names for part in name.split(".")}
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            found |= _words(constant)
    return found
