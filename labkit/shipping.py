"""Values and programs packed for another Python process: also functions and classes of cells.

>>> unpack(pack(lambda x: x + 1, "the function"))(1)
2

What another process can import is sent by its name; all else, as itself (cloudpickle). Bytes are
only ever unpacked by a process of the same user that this one has started, or by this one.
"""

from __future__ import annotations

import importlib
import inspect
import io
import linecache
import os
import pickle
import reprlib
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from labkit.kinds import LabError

LARGEST = 2**28  # bytes of all copies of a program
ADVICE = "Send plain values, arrays or functions, and make such things where they are needed."


@contextmanager
def exit_is_return() -> Iterator[None]:
    """In it, sys.exit(0) ends the program of a rank as it ends a script: without an error."""
    try:
        yield
    except SystemExit as ending:
        if ending.code not in (None, 0):
            raise


def pack(value: object, what: str, then: str = ADVICE) -> bytes:
    """The value as bytes. `what` names it in the sentence of a LabError; `then` says what to do."""
    import cloudpickle

    class Packer(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, part: Any) -> Any:
            # A room of labkit is a module that can be called, a class that cloudpickle refuses.
            if isinstance(part, ModuleType) and type(part) is not ModuleType:
                return importlib.import_module, (part.__name__,)
            return super().reducer_override(part)

    packed = io.BytesIO()
    try:
        Packer(packed).dump(value)
        return packed.getvalue()
    except Exception as fault:
        # Any __reduce__ of the user's own may have run, and raised anything.
        raise LabError(
            f"{what} cannot be sent to other processes: {type(fault).__name__}: {fault}. {then}"
        ) from fault


def unpack(data: bytes | memoryview) -> Any:
    """The value that `pack` packed."""
    return pickle.loads(data)  # noqa: S301 (our own: see the top of this file)


def copies(program: partial[Any], count: int) -> Sequence[Callable[..., Any]]:
    """Returns the program `count` times, each with variables of its own.

    A program that cannot be copied, or is too large, shares them.
    """
    if in_processes := getattr(program.func, "_in_processes", None):  # in `labkit grade`
        return [partial(one, **program.keywords) for one in in_processes(count)]
    with suppress(Exception):  # whatever an object of the user's raises when it is made again
        packed = pack(program, "The program")
        if len(packed) * count <= LARGEST:
            return [unpack(packed) for _ in range(count)]
    return [program] * count


def pack_program(
    program: Callable[..., Any], args: tuple[Any, ...] = (), *, own_packages: bool = False
) -> bytes:
    """A call of a function, with what it needs to run elsewhere as it would here.

    That is sys.path, the working folder, and the source of cells: tracebacks and AutoGraph read it.
    `own_packages`: the other Python has packages of its own, so that ours are left out of its path.
    """
    name = getattr(program, "__name__", type(program).__name__)
    try:
        call = pack((program, args), f"The program {name}")
    except LabError:
        # Find the part that cannot be sent, and name it.
        for number, value in enumerate(args):
            pack(value, f"Argument {number + 1} of {name} ({reprlib.repr(value)})")
        for function in functions_of(program):
            for used, value in names_used(function):
                if not isinstance(value, (FunctionType, ModuleType, type)):
                    pack(value, f"The program {name} uses `{used}`, and {used}")
        raise
    paths = [path or str(Path.cwd()) for path in sys.path]
    if own_packages:
        ours = sys.prefix, sys.base_prefix
        paths = [path for path in paths if not path.startswith(ours) and "-packages" not in path]
    # linecache keeps the source of cells, which no file holds, without a time stamp.
    sources = {
        file: "".join(entry[2])
        for file, entry in list(linecache.cache.items())
        if len(entry) == 4 and entry[1] is None and not Path(file).exists()
    }
    return pickle.dumps((paths, own_packages, str(Path.cwd()), sources, call))


@dataclass(frozen=True)
class FunctionSource:
    """A function as its source, for a Python of another minor version: byte code differs there."""

    name: str
    text: str
    file: str
    modules: dict[str, str]  # the name of each module that it uses, by the name that it uses

    @staticmethod
    def of(function: Callable[..., Any]) -> FunctionSource:
        """The source of a function that uses modules and built-in names only."""
        name = getattr(function, "__name__", repr(function))
        advice = "Write it into a file, and call c.run_script('train.py')."
        try:
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            lines, first = [], 0
        if not (lines and isinstance(function, FunctionType) and name.isidentifier()):
            raise LabError(
                f"{name} has no source that another Python version could be sent. {advice}"
            )
        used = dict(names_used(function))
        if others := [each for each in used if not isinstance(used[each], ModuleType)]:
            raise LabError(
                f"{name} uses {others[0]} from outside itself, so that another Python version "
                f"cannot be sent it. Make that in {name}, or give it as an argument. {advice}"
            )
        text = "\n" * max(0, first - 1) + textwrap.dedent("".join(lines))
        modules = {each: module.__name__ for each, module in used.items()}
        return FunctionSource(name, text, inspect.getfile(function), modules)

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any) -> Any:
        """Define the function, and call it."""
        names: dict[str, Any] = {"__name__": "__main__"}
        names |= {each: importlib.import_module(name) for each, name in self.modules.items()}
        exec(compile(self.text, self.file, "exec"), names)  # noqa: S102 (the user's own function)
        return names[self.name](*args)


def unpack_program(data: bytes) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function and its arguments, in a process that is then set up for them."""
    path, own_packages, folder, sources, call = pickle.loads(data)  # noqa: S301
    sys.path[:] = [*path, *(sys.path if own_packages else ())]
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


def call_in(data: bytes) -> bytes:
    """The function and its arguments as they travel: names, byte code and values."""
    return pickle.loads(data)[-1]  # type: ignore[no-any-return]  # noqa: S301


def functions_of(program: Callable[..., Any]) -> list[FunctionType]:
    """The function, and those of the same module that it uses."""
    found: list[FunctionType] = []
    unseen: list[Any] = [getattr(program, "func", program)]  # a partial calls its `func`
    while unseen:
        part = unseen.pop()
        if (
            isinstance(part, FunctionType)
            and part not in found
            and (not found or part.__module__ == found[0].__module__)
        ):
            found.append(part)
            unseen += [value for _, value in names_used(part)]
    return found


def names_used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names that the function takes from outside itself, with their values."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not yet set
            yield name, cell.cell_contents
    for name in sorted(names_in(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def names_in(code: CodeType) -> set[str]:
    """Every name in the code of a function, and of those that are defined in it."""
    inner = (names_in(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inner)
