"""The functions of a program: defined, and followed where they are called."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.training.defects.agreement import agreed
from labkit.training.defects.names import Names
from labkit.training.defects.story import Traced
from labkit.training.defects.values import Const, Function, Seq, Unknown

__all__ = ["Managed", "defined", "invoke", "manage"]

DEPTH = 12


@dataclass(frozen=True)
class Managed:
    """A call of a generator function made for `with`."""

    function: Function
    args: tuple[Any, ...]
    keywords: dict[str, Any]


def defined(reader: Any, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Function:
    """A function where it is defined."""
    given = node.args.defaults
    positional = [*node.args.posonlyargs, *node.args.args]
    last = positional[len(positional) - len(given) :]
    defaults = {one.arg: reader.value(value) for one, value in zip(last, given, strict=True)}
    for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if value is not None:
            defaults[one.arg] = reader.value(value)
    made = Function(node, reader.names, reader.program, defaults)
    reader.functions.append(made)
    return made


def invoke(
    reader: Any,
    function: Function,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    owner: Any = None,
    node: ast.AST | None = None,
) -> Any:
    """Follow a function with these arguments; what it returns."""
    function.called = True
    if len(reader.going) >= DEPTH or function.node in reader.going:
        return Unknown()
    here = reader.names, reader.program
    at, spot = reader.tick(), None if node is None else reader.spot(node)
    reader.names, reader.program = _bound(function, args, keywords, owner), function.program
    reader.going.append(function.node)
    reader.returned.append([])
    reader.tracing += function.traced
    try:
        if isinstance(function.node, ast.Lambda):
            return reader.value(function.node.body)
        reader.statements(function.node.body)
        return agreed(reader.returned[-1]) if reader.returned[-1] else Const(None)
    finally:
        reader.tracing -= function.traced
        reader.returned.pop()
        reader.going.pop()
        reader.names, reader.program = here
        if function.traced and not reader.tracing and spot is not None:
            if not function.warm:
                reader.story.traced.append(Traced(at, spot, function))
            function.warm = True


def _bound(
    function: Function, args: Sequence[Any], keywords: Mapping[str, Any], owner: Any
) -> Names:
    """The parameters, by name."""
    names, given = Names(function.names), list(args)
    wanted = function.node.args
    positional = [one.arg for one in (*wanted.posonlyargs, *wanted.args)]
    owner = function.owner if owner is None else owner
    if owner is not None and positional:
        names.values[positional.pop(0)] = owner
    for name in [*positional, *(one.arg for one in wanted.kwonlyargs)]:
        if name in positional and given:
            names.values[name] = given.pop(0)
        elif name in keywords:
            names.values[name] = keywords[name]
        else:
            names.values[name] = function.defaults.get(name, Unknown(name))
    for rest in (wanted.vararg, wanted.kwarg):
        if rest is not None:
            names.values[rest.arg] = Unknown(rest.arg)
    if wanted.vararg is not None and given:
        names.values[wanted.vararg.arg] = Seq(tuple(given))
    return names


def manage(reader: Any, managed: Managed, body: Callable[[Any], None]) -> None:
    """A with statement over a generator function: its body runs where the function yields."""
    outer = reader.names, reader.program, reader.going

    def go_on(given: Any) -> None:
        inner = reader.names, reader.program, reader.going
        reader.names, reader.program, reader.going = outer
        reader.yields.append(lambda _: None)
        body(given)
        reader.yields.pop()
        reader.names, reader.program, reader.going = inner

    reader.yields.append(go_on)
    invoke(reader, managed.function, managed.args, managed.keywords)
    reader.yields.pop()
