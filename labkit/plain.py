"""How labkit's objects become JSON and come back: frozen dataclasses of plain values, versioned.

>>> from labkit.kinds import measured
>>> load(dump(measured("this laptop"))) == measured("this laptop")
True
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import os
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from labkit.kinds import Kind, LabError

__all__ = ["atomic_write", "dump", "load", "read", "stored", "write", "write_text"]

FORMAT = 1
T = TypeVar("T")
_stored: dict[str, type] = {}


def stored(cls: type[T]) -> type[T]:
    """Register a frozen dataclass as something that can be written to JSON and read back."""
    _stored[_name(cls)] = cls
    return cls


def _name(cls: type) -> str:
    """With its room: both timing and collectives have a Verdict.

    >>> _name(Kind)
    'kinds.Kind'
    """
    return f"{cls.__module__.removeprefix('labkit.').partition('.')[0]}.{cls.__name__}"


stored(Kind)


def dump(value: object) -> str:
    """The JSON text of a registered dataclass, with its name and the version of the format."""
    name = _name(type(value))
    if name not in _stored:
        raise TypeError(f"{type(value).__name__} is not registered with @stored")
    content = {"labkit": FORMAT, "type": name, "value": _plain(value)}
    return json.dumps(content, ensure_ascii=False, indent=1)


def load(text: str) -> Any:
    """The object that `dump` wrote."""
    try:
        content = json.loads(text)
        if content["labkit"] != FORMAT:
            raise ValueError(f"format {content['labkit']}, not {FORMAT}")
        return _typed(_stored[content["type"]], content["value"])
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        raise LabError(
            "This is not a file that this version of labkit wrote, or it is damaged or cut short "
            f"({type(fault).__name__}: {fault}). Save it again, or use another copy."
        ) from fault


def write(path: str | Path, value: object) -> Path:
    """Write a registered dataclass to a file; `read` gives it back."""
    return write_text(path, dump(value) + "\n")


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
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read(path: str | Path, types: tuple[type, ...], what: str) -> Any:
    """The object in a file that `write` wrote; `what` says in words which it must be."""
    try:
        found = load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as fault:
        raise LabError(
            f"{str(path)!r} cannot be read: {fault}. Give the path that you gave to .save(path)."
        ) from fault
    if not isinstance(found, types):
        raise LabError(f"{str(path)!r} holds a {type(found).__name__}, not {what}.")
    return found


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{value!r} is not a plain value")


def _typed(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint(**{name: _typed(type_, value[name]) for name, type_ in _hints(hint).items()})
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _typed(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return tuple(_typed(arguments[0], item) for item in value)
        return tuple(_typed(a, item) for a, item in zip(arguments, value, strict=True))
    if origin is dict:
        return {key: _typed(arguments[1], item) for key, item in value.items()}
    if hint is bytes:
        return base64.b64decode(value, validate=True)
    return float(value) if hint is float else value


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    """The stored fields of a dataclass; a private field is not stored."""
    return tuple(f.name for f in dataclasses.fields(cls) if not f.name.startswith("_"))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {name: hints[name] for name in _names(cls)}
