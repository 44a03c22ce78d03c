"""What is sure when a program may go several ways: what all of them agree on."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from labkit.training.defects.values import (
    Const,
    Dotted,
    Function,
    Instance,
    Klass,
    Model,
    Number,
    Scope,
    Strategy,
    Text,
    Unknown,
)

__all__ = ["agreed", "compared", "merged"]


def merged(branches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What every branch agrees on; a thing of which either will do keeps the first."""
    agreed: dict[str, Any] = {}
    for name in dict.fromkeys(name for branch in branches for name in branch):
        there = [branch[name] for branch in branches if name in branch]
        first = there[0]
        same = all(one is first or (type(one) is type(first) and one == first) for one in there)
        either = isinstance(first, (Strategy, Function, Klass, Dotted, Scope))
        if same or either:
            agreed[name] = first
        elif len(there) == len(branches) or not isinstance(first, Unknown):
            agreed[name] = Unknown(name)
    return agreed


def agreed(values: Sequence[Any]) -> Any:
    """One value for several possible ones: what they agree on, or nothing."""
    known = [one for one in values if not isinstance(one, (Unknown, Const))]
    if not known:
        return values[0] if values and all(one == values[0] for one in values) else Unknown()
    first = known[0]
    if all(one is first or (type(one) is type(first) and one == first) for one in known):
        return first
    return first if isinstance(first, (Strategy, Function, Model)) else Unknown()


def compared(how: ast.cmpop, left: Any, right: Any) -> bool | None:
    """Whether a comparison holds, if that can be known."""
    plain = (Const, Text, Number)
    if isinstance(left, Text) and left.value == "__main__":
        left, right = right, left
    if isinstance(left, Unknown) and left.name == "__name__":
        return True if isinstance(how, ast.Eq) else None
    known = isinstance(left, plain) and isinstance(right, plain)
    something = isinstance(left, (Strategy, Function, Klass, Instance)) and right == Const(None)
    if not (known or something) or any(isinstance(x, Number) and x.factors for x in (left, right)):
        return None
    if isinstance(how, (ast.Is, ast.Eq)):
        return bool(left == right)
    if isinstance(how, (ast.IsNot, ast.NotEq)):
        return bool(left != right)
    if isinstance(left, Number) and isinstance(right, Number):
        a, b = left.value, right.value
        return {ast.Gt: a > b, ast.Lt: a < b, ast.GtE: a >= b, ast.LtE: a <= b}.get(type(how))
    return None
