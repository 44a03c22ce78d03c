"""Values and programs packed for another Python: also functions and classes of a notebook's cells.

>>> unpack(pack(lambda x: x + 1, "the function"))(1)
2

What another process can import is sent by its name; all else, as itself. Bytes are only ever
unpacked by a process of the same user that this one has started, or by this one.
"""

from __future__ import annotations

import functools
import importlib
import io
import linecache
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from labkit.kinds import LabError, bytes_text

__all__ = ["functions_of", "names_used", "pack", "pack_program", "unpack", "unpack_program"]

LARGEST = 2**31  # bytes: beyond it, files are the way
MOST_FUNCTIONS = 1000  # looked at, of a program that uses half a library


def pack(value: object, what: str, then: str = "") -> bytes:
    """The value as bytes. `what` names it in the sentence of a LabError; `then` says what to do."""
    try:
        with _by_value(value):
            data = _dumped(value)
    except RecursionError:
        raise _cannot_be_sent(what, value, "it is nested too deeply", then) from None
    except Exception as fault:
        # Any __reduce__ or __getstate__ of the user's own may have run, and raised anything.
        raise _cannot_be_sent(what, value, f"{type(fault).__name__}: {fault}", then) from fault
    if len(data) > LARGEST:
        raise LabError(
            f"{what} has {bytes_text(len(data))}, and at most {bytes_text(LARGEST)} are sent "
            "between processes. Write it to a file, and send the file's path."
        )
    return data


def _dumped(value: object) -> bytes:
    import cloudpickle

    class Packer(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, part: Any) -> Any:
            # A room of labkit is a module that can be called: a class that cloudpickle knows not.
            if isinstance(part, ModuleType) and type(part) is not ModuleType:
                return importlib.import_module, (part.__name__,)
            return super().reducer_override(part)

    out = io.BytesIO()
    Packer(out).dump(value)
    return out.getvalue()


def unpack(data: bytes | memoryview) -> Any:
    """The value that `pack` packed."""
    return pickle.loads(data)  # noqa: S301 (our own: see the top of this file)


def pack_program(program: Callable[..., Any], args: tuple[Any, ...] = ()) -> bytes:
    """A call of a function, with what it needs to run elsewhere as it would here.

    That is sys.path, the working folder, and the source of cells: tracebacks and AutoGraph read it.
    """
    name = getattr(program, "__name__", type(program).__name__)
    try:
        call = pack((program, args), f"The program {name}")
    except LabError:
        _explain_parts(program, name)
        for number, value in enumerate(args):
            pack(value, f"Argument {number + 1} of {name} ({_short(value)})")
        raise
    return pickle.dumps((_paths(), _folder(), _sources(), call))


def unpack_program(data: bytes) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function and its arguments, in a process that is then set up for them."""
    path, folder, sources, call = pickle.loads(data)  # noqa: S301
    sys.path[:] = path
    try:
        os.chdir(folder)
    except OSError as fault:
        raise LabError(
            f"The folder {folder!r} of your session cannot be entered here: {fault}. "
            "Start from a folder that every rank can read."
        ) from fault
    for file, text in sources.items():
        # No time stamp: then linecache does not look for a file on disk.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return unpack(call)  # type: ignore[no-any-return]


def functions_of(program: Callable[..., Any]) -> Iterator[FunctionType]:
    """The function, and those that it uses and that are of the same hand: its cell or package."""
    seen: set[int] = set()
    waiting: list[Any] = [program]
    home = str(getattr(program, "__module__", None) or "").partition(".")[0]
    while waiting and len(seen) < MOST_FUNCTIONS:
        part = _inner(waiting.pop())
        if id(part) in seen:
            continue
        seen.add(id(part))
        if part.__class__ is not type and not isinstance(part, FunctionType):
            continue
        # A function made by hand may have no module at all.
        if (part.__module__ or "").partition(".")[0] != home and _is_importable(part):
            continue
        if isinstance(part, FunctionType):
            yield part
            waiting.extend(value for _, value in names_used(part) if callable(value))
        else:
            waiting.extend(value for value in vars(part).values() if callable(value))


def _inner(part: Any) -> Any:
    """What a method, a partial or a decorated function is about."""
    for _ in range(20):
        if isinstance(part, MethodType):
            part = part.__func__
        elif isinstance(part, functools.partial):
            part = part.func
        elif isinstance(part, (staticmethod, classmethod)):
            part = part.__func__
        elif isinstance(part, FunctionType) or not hasattr(part, "__wrapped__"):
            break
        else:
            part = part.__wrapped__
    return part


def names_used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names that the function takes from outside itself, with their values."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet set
            continue
    for name in sorted(set(_names(function.__code__))):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _explain_parts(program: Callable[..., Any], name: str) -> None:
    """Say which of the names that a program uses cannot go with it."""
    for function in functions_of(program):
        for used, value in names_used(function) if not _is_importable(function) else ():
            if isinstance(value, (ModuleType, FunctionType, type)):
                continue
            pack(
                value,
                f"The program {name} uses `{used}`, and {used} ({_short(value)})",
                f"Make {used} inside the program, or give what it is made from.",
            )


def _cannot_be_sent(what: str, value: object, why: str, then: str) -> LabError:
    advice = then or "Send plain values, arrays or functions, and make such things where needed."
    return LabError(f"{what} cannot be sent to other processes: {why}. {advice}")


@contextmanager
def _by_value(value: object) -> Iterator[None]:
    """Within it, what lives in a module that no other process can import is sent as itself."""
    import cloudpickle

    ours = {
        module.__name__: module
        for part in _parts(value)
        if (module := sys.modules.get(getattr(part, "__module__", None) or "")) is not None
        if module.__name__ != "__main__" and not _is_on_path(module.__name__)
    }
    known = cloudpickle.list_registry_pickle_by_value()
    for name, module in ours.items():
        if name not in known:
            cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for name, module in ours.items():
            if name not in known:
                cloudpickle.unregister_pickle_by_value(module)


def _parts(value: object) -> Iterator[object]:
    """Functions and classes that the value is, or is made of, at first sight."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _parts(item)
    elif callable(value):
        yield value
        for function in functions_of(value):
            yield function
            yield from (part for _, part in names_used(function) if isinstance(part, type))
    else:
        yield type(value)


def _is_importable(part: FunctionType | type) -> bool:
    """Whether another Python finds this very function or class by its module and name."""
    module = sys.modules.get(part.__module__)
    if module is None or module.__name__ == "__main__" or "<locals>" in part.__qualname__:
        return False
    found: Any = module
    for name in part.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is part and _is_on_path(module.__name__)


def _is_on_path(name: str) -> bool:
    """Whether `import name` gives this module in a process with the same sys.path.

    pytest's importlib mode makes modules that sys.modules knows and no path leads to.
    """
    parent = name.rpartition(".")[0]
    if parent and not _is_on_path(parent):
        return False
    path = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    for finder in sys.meta_path:
        if type(finder).__module__.startswith("_pytest") or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(name, path)
        if spec is not None:
            file = getattr(sys.modules.get(name), "__file__", None)
            return file is None or spec.origin == file
    return False


def _paths() -> list[str]:
    return [path or _folder() for path in sys.path]


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # the folder has been deleted under the session
        return "/"


def _sources() -> dict[str, str]:
    """Source that no file holds: linecache keeps that of cells without a time stamp."""
    return {
        file: "".join(entry[2])
        for file, entry in list(linecache.cache.items())
        if len(entry) == 4 and entry[1] is None and not Path(file).exists()
    }


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (a repr of the user's own)
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"a {type(value).__name__}"
