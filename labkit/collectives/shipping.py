"""A program packed for another Python: by its name when it can be imported, else as its source.

A function of a notebook has no name to import it by. What it needs goes with it: the functions of
the notebook that it calls, the modules it uses, and values that can be pickled.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pickle
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from labkit.collectives.communicator import ANY_SOURCE, ANY_TAG, PROC_NULL
from labkit.kinds import LabError

__all__ = ["pack", "pack_options", "unpack"]

Parts = dict[str, tuple[str, Any]]
# They stand for something, and each MPI has its own number for it.
CONSTANTS = {ANY_SOURCE: "ANY_SOURCE", ANY_TAG: "ANY_TAG", PROC_NULL: "PROC_NULL"}


def pack(program: Callable[..., Any]) -> bytes:
    """The program as bytes that `unpack` reads in another process of this machine."""
    inner = getattr(program, "func", program)
    if not isinstance(inner, FunctionType) or is_importable(inner):
        _explain_class("The program", inner)
        try:
            return pickle.dumps(("pickled", program))
        except (pickle.PicklingError, AttributeError, TypeError) as fault:
            raise LabError(
                f"{program!r} cannot be sent to other processes: {fault}. "
                "Write the program as a function of its own (def program(comm, buffer): ...)."
            ) from fault
    if inner is not program:
        raise LabError(
            "A functools.partial of a notebook's function cannot be sent to other processes. "
            "Give the function itself, and its options as keywords: run_mpi(program, op='max')."
        )
    parts: Parts = {}
    _add(inner, inner.__name__, parts)
    return pickle.dumps(("source", (inner.__name__, parts)))


def pack_options(options: dict[str, Any], deadline: float) -> bytes:
    """The keywords of the program, and how long it may take."""
    for name, value in options.items():
        _explain_class(f"{name}={value!r}", value)
        try:
            pickle.dumps(value)
        except (pickle.PicklingError, AttributeError, TypeError) as fault:
            raise LabError(
                f"{name}={value!r} cannot be sent to other processes: {fault}. Give numbers, "
                "texts or functions of a module."
            ) from fault
    return pickle.dumps((options, deadline))


def _explain_class(what: str, value: Any) -> None:
    """Another process has no such class or function: its `__main__` is another."""
    named = isinstance(value, (type, FunctionType))
    kind = value if named else type(getattr(value, "__self__", value))
    if kind.__module__ == "__main__":
        raise LabError(
            f"{what} cannot be sent to other processes: {kind.__name__} is of this notebook or "
            "script. Write it in a file of its own and import it."
        )


def unpack(data: bytes) -> Callable[..., Any]:
    """The program that `pack` packed."""
    way, content = pickle.loads(data)  # noqa: S301 (this machine's own, written a moment ago)
    if way == "pickled":
        return content  # type: ignore[no-any-return]
    name, parts = content
    names: dict[str, Any] = {"__name__": "__main__"}
    for part, (kind, value) in parts.items():
        if kind == "module":
            names[part] = importlib.import_module(value)
        elif kind == "constant":
            names[part] = getattr(importlib.import_module("mpi4py.MPI"), value)
        elif kind == "value":
            names[part] = pickle.loads(value)  # noqa: S301
        else:
            text, file, first = value
            # Empty lines before it: a fault in it then names the line of the cell.
            exec(compile("\n" * (first - 1) + text, file, "exec"), names)  # noqa: S102
    return names[name]  # type: ignore[no-any-return]


def is_importable(function: FunctionType) -> bool:
    """Whether another Python finds this very function by its module and name."""
    module = sys.modules.get(function.__module__)
    if module is None or function.__module__ == "__main__":
        return False
    if getattr(module, function.__qualname__, None) is not function:
        return False
    try:
        spec = importlib.util.find_spec(function.__module__)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin == getattr(module, "__file__", "")


def _add(function: FunctionType, name: str, parts: Parts) -> None:
    """The function's source, and before it all that it uses."""
    if function.__name__ == "<lambda>":
        raise LabError(
            "A lambda cannot be sent to other processes. Write the program as a function of its "
            "own (def program(comm, buffer): ...)."
        )
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as fault:
        raise LabError(
            f"The source of {function.__name__} cannot be read, so that it cannot be sent to other "
            "processes. Write it in a cell or a file of its own."
        ) from fault
    text = textwrap.dedent("".join(lines))
    parts[name] = ("function", (text, function.__code__.co_filename, first))
    for used, value in _used(function):
        if used not in parts:
            _add_value(used, value, parts)
    # Functions may stand in any order, but a decorator or a default needs its names first.
    parts[name] = parts.pop(name)


def _add_value(name: str, value: Any, parts: Parts) -> None:
    if isinstance(value, ModuleType):
        parts[name] = ("module", value.__name__)
    elif isinstance(value, FunctionType) and not is_importable(value):
        _add(value, value.__name__, parts)
    elif type(value) is int and value in CONSTANTS:
        parts[name] = ("constant", CONSTANTS[value])
    else:
        _explain_class(f"The program uses {name}, and it", value)
        try:
            parts[name] = ("value", pickle.dumps(value))
        except (pickle.PicklingError, AttributeError, TypeError) as fault:
            raise LabError(
                f"The program uses {name}, and {name} cannot be sent to other processes: {fault}. "
                "Give it as an option, or make it inside the program."
            ) from fault


def _used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names that the function takes from outside itself, with their values."""
    if function.__closure__:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
            yield name, cell.cell_contents
    for name in sorted(set(_names(function.__code__))):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
