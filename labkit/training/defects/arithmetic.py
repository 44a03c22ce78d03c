"""Arithmetic as far as it matters here: batches, clocks, and bytes that become floats."""

from __future__ import annotations

import ast
import re
from typing import Any

from labkit.training.defects.story import Region
from labkit.training.defects.values import Array, Clock, Number, Output, Unknown, product

__all__ = ["as_number", "combined", "scaled"]

_IMAGES = re.compile(r"(^|_)(x|images?|pixels?)($|_)|^[xX]\d*$", re.IGNORECASE)


def combined(reader: Any, how: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
    """What left and right give together."""
    if isinstance(how, ast.Sub) and isinstance(right, Clock):
        return _elapsed(reader, left, right, node)
    if isinstance(how, (ast.Div, ast.Mult)):
        divides = isinstance(how, ast.Div)
        array = scaled(reader, left, right, divides, node)
        if array is None and not divides:
            array = scaled(reader, right, left, divides, node)
        if array is not None:
            return array
    if isinstance(left, (Array, Output)):
        return left
    return _numbers(how, as_number(left), as_number(right))


def _elapsed(reader: Any, left: Any, right: Clock, node: ast.AST) -> Any:
    if isinstance(left, Clock):
        reader.story.regions.append(
            Region(left.path, right.at, left.at, right.spot, reader.spot(node), right.loops)
        )
    return Unknown("seconds")


def scaled(reader: Any, left: Any, right: Any, divides: bool, node: ast.AST) -> Array | None:
    """An array of bytes that is multiplied or divided by a Python number becomes float64."""
    by = right if isinstance(right, Number) and not right.factors else None
    if isinstance(left, Array):
        if left.dtype == "bytes" and by is not None and (divides or by.value % 1):
            return double(reader, left, node)
        return left
    # Images from another cell: bytes, by all experience, if somebody divides them by 255.
    outside = isinstance(left, Unknown) and reader.at_top and _IMAGES.search(left.name)
    if outside and divides and by is not None and 254 <= by.value <= 256:
        return double(reader, Array(left.name), node)
    return None


def double(reader: Any, array: Array, node: ast.AST) -> Array:
    """The same array in float64, remembered as such."""
    made = Array(array.name, "float64", array.one_hot, made=reader.spot(node))
    reader.story.doubles.append(made)
    return made


def as_number(value: Any) -> Number | None:
    """A number, or the name of one."""
    if isinstance(value, Number):
        return value
    if isinstance(value, Unknown) and value.name and value.name != "seconds":
        return Number(1, (value.name,))
    return None


def _numbers(how: ast.operator, left: Number | None, right: Number | None) -> Any:
    if left is None or right is None:
        return Unknown()
    made: Number | None = None
    if isinstance(how, ast.Mult):
        made = product(left, right, 1)
    elif isinstance(how, (ast.Div, ast.FloorDiv)):
        made = product(left, right, -1)
        if made is not None and isinstance(how, ast.FloorDiv) and not made.factors:
            made = Number(made.value // 1)
    elif not left.factors and not right.factors:
        made = _plain(how, left.value, right.value)
    return Unknown() if made is None else made


def _plain(how: ast.operator, left: float, right: float) -> Number | None:
    if isinstance(how, ast.Add):
        return Number(left + right)
    if isinstance(how, ast.Sub):
        return Number(left - right)
    if isinstance(how, ast.Mod) and right:
        return Number(left % right)
    # No tower of powers: 10 ** 10 ** 10 is a program too.
    if isinstance(how, ast.Pow) and abs(left) <= 1024 and 0 <= right <= 16:
        return Number(left**right)
    return None
