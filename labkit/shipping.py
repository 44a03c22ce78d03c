"""Values and programs packed for another Python process: also functions and classes of cells.

>>> unpack(pack(lambda x: x + 1, "the function"))(1)
2

What another process can import is sent by its name; all else, as itself (cloudpickle). Bytes are
only ever unpacked by a process of the same user that this one has started, or by this one.
"""

from __future__ import annotations

import importlib
import io
import linecache
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from labkit.kinds import LabError

__all__ = ["is_importable", "names_used", "pack", "pack_program", "unpack", "unpack_program"]


def pack(value: object, what: str, then: str = "") -> bytes:
    """The value as bytes. `what` names it in the sentence of a LabError; `then` says what to do."""
    try:
        return _dumped(value)
    except Exception as fault:
        # Any __reduce__ of the user's own may have run, and raised anything.
        advice = (
            then or "Send plain values, arrays or functions, and make such things where needed."
        )
        raise LabError(
            f"{what} cannot be sent to other processes: {type(fault).__name__}: {fault}. {advice}"
        ) from fault


def _dumped(value: object) -> bytes:
    import cloudpickle

    checked: set[str] = {"__main__"}
    by_value: list[ModuleType] = []

    class Packer(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, part: Any) -> Any:
            # A room of labkit is a module that can be called, a class that cloudpickle refuses.
            if isinstance(part, ModuleType) and type(part) is not ModuleType:
                return importlib.import_module, (part.__name__,)
            if isinstance(part, (FunctionType, type)) and part.__module__ not in checked:
                checked.add(part.__module__)
                module = sys.modules.get(part.__module__)
                if module is not None and not _is_on_path(module.__name__):
                    cloudpickle.register_pickle_by_value(module)
                    by_value.append(module)
            return super().reducer_override(part)

    out = io.BytesIO()
    try:
        Packer(out).dump(value)
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)
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
        _explain(program, name, set())
        for number, value in enumerate(args):
            pack(value, f"Argument {number + 1} of {name} ({_short(value)})")
        raise
    paths = [path or _folder() for path in sys.path]
    # linecache keeps the source of cells, which no file holds, without a time stamp.
    sources = {
        file: "".join(entry[2])
        for file, entry in list(linecache.cache.items())
        if len(entry) == 4 and entry[1] is None and not Path(file).exists()
    }
    return pickle.dumps((paths, _folder(), sources, call))


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


def _explain(program: Any, name: str, seen: set[Any]) -> None:
    """Raise a LabError for the first name that cannot be sent, in the program and its functions."""
    if not isinstance(program, FunctionType) or program in seen or is_importable(program):
        return
    seen.add(program)
    for used, value in names_used(program):
        if isinstance(value, FunctionType):
            _explain(value, name, seen)
        elif not isinstance(value, (ModuleType, type)):
            pack(
                value,
                f"The program {name} uses `{used}`, and {used} ({_short(value)})",
                f"Make {used} inside the program, or give what it is made from.",
            )


def is_importable(part: FunctionType | type) -> bool:
    """Whether a process with the same sys.path finds this function or class by its name."""
    module = sys.modules.get(part.__module__)
    if module is None or module.__name__ == "__main__" or "<locals>" in part.__qualname__:
        return False
    found: Any = module
    for name in part.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is part and _is_on_path(module.__name__)


def _is_on_path(name: str) -> bool:
    """Whether `import name` gives this module: pytest makes modules to which no path leads."""
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


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # the folder has been deleted under the session
        return "/"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (a repr of the user's own)
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"a {type(value).__name__}"
