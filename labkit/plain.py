"""How files are written: whole or not at all; and frozen dataclasses of plain values as JSON."""

import dataclasses
import fcntl
import itertools
import json
import os
import typing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from labkit.kinds import LabError

FORMAT = 1
T = TypeVar("T")


def write(path: str | Path, value: Any) -> Path:
    """Write a frozen dataclass to a file, with its name and the version of the format."""
    content = {"labkit": FORMAT, "type": _name(type(value)), "value": dataclasses.asdict(value)}
    return write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def read(path: str | Path, cls: type[T], what: str) -> T:
    """The object in a file that `write` wrote; `what` says in words which it must be."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if (content["labkit"], content["type"]) != (FORMAT, _name(cls)):
            raise ValueError(f"{content['type']}, format {content['labkit']}")
        found: T = typed(cls, content["value"])
    except OSError as fault:
        raise LabError(f"{str(path)!r} cannot be read: {fault}.") from fault
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as fault:
        raise LabError(
            f"{str(path)!r} cannot be read as {what}: it is not a file that this version of labkit "
            f"wrote, or it is damaged or cut short ({type(fault).__name__}: {fault}). "
            "Use another copy, or make it again."
        ) from fault
    return found


def write_text(path: str | Path, text: str) -> Path:
    """Write a file of the user's, or say why that cannot be."""
    target = Path(path)
    try:
        atomic_write(target, text)
    except OSError as fault:
        raise LabError(
            f"{str(path)!r} cannot be written: {fault}. "
            "Give the path of a file in a folder that exists and is yours."
        ) from fault
    return target


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file so that every reader sees the old one or the whole new one."""
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    draft.touch(exist_ok=False)  # this call's own
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One kernel at a time reads and then writes: of two at once one would lose its change."""
    descriptor = -1
    with suppress(OSError):  # some network file systems know no locks
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _name(cls: type) -> str:
    return f"{cls.__module__.split('.')[1]}.{cls.__name__}"  # with its room


def typed(hint: Any, value: Any) -> Any:
    """What JSON made of a value, as the type that it had; TypeError if it cannot have been that.

    Of a dataclass, what is missing has its default, and what it does not know is left out.
    """
    kind, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        fields = typing.get_type_hints(hint)
        return hint(**{name: typed(fields[name], value[name]) for name in fields if name in value})
    if kind is dict:
        return {key: typed(arguments[1], item) for key, item in value.items()}
    if kind is list:
        return [typed(arguments[0], item) for item in value]
    if kind is tuple:
        types = itertools.repeat(arguments[0]) if arguments[-1] is Ellipsis else arguments
        return tuple(map(typed, types, value))
    if type(None) in arguments:  # int | None
        return None if value is None else typed(arguments[0], value)
    # A Literal has its values as arguments; JSON writes a whole float as 3.0, people write 3.
    allowed = (
        value in arguments if arguments else isinstance(value, (hint, *[int] * (hint is float)))
    )
    if not allowed:
        raise TypeError(f"{value!r} where {getattr(hint, '__name__', hint)} is needed")
    return value
