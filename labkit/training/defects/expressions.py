"""What expressions of a program give, and what calling its own functions does."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from labkit.training.defects import calls
from labkit.training.defects.agreement import agreed
from labkit.training.defects.arithmetic import combined
from labkit.training.defects.functions import defined
from labkit.training.defects.names import Names, canonical
from labkit.training.defects.state import State
from labkit.training.defects.values import (
    Array,
    Clock,
    Const,
    Dotted,
    Instance,
    Klass,
    Method,
    Model,
    Number,
    Pipeline,
    Seq,
    Strategy,
    Table,
    Text,
    Unknown,
)

__all__ = ["Expressions"]


class Expressions(State):
    """Reading expressions. `Reader` adds the statements."""

    def value(self, node: ast.expr) -> Any:
        """What is known of an expression's value."""
        self.steps += 1
        visit: Callable[[Any], Any] | None = getattr(
            self, f"of_{type(node).__name__.lower()}", None
        )
        if visit is not None:
            return visit(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
        return Unknown()

    def of_constant(self, node: ast.Constant) -> Any:
        value = node.value
        if value is None or isinstance(value, bool):
            return Const(value)
        if isinstance(value, (int, float)):
            return Number(value)
        return Text(value, self.spot(node)) if isinstance(value, str) else Unknown()

    def of_name(self, node: ast.Name) -> Any:
        return self.names.get(node.id)

    def of_attribute(self, node: ast.Attribute) -> Any:
        bound = self.names.get(ast.unparse(node))
        if not isinstance(bound, Unknown):
            return bound
        return self.attribute(self.value(node.value), node.attr)

    def attribute(self, owner: Any, name: str) -> Any:
        """owner.name"""
        if name == "num_replicas_in_sync":
            return Number(1, ("replicas",))
        if isinstance(owner, Dotted):
            return Dotted(canonical(f"{owner.path}.{name}"))
        if isinstance(owner, Instance):
            if name in owner.attributes:
                return owner.attributes[name]
            return owner.klass.members.get(name, Unknown(name))
        if isinstance(owner, Klass):
            return owner.members.get(name, Unknown(name))
        if isinstance(owner, Clock):
            return owner
        if isinstance(owner, (Model, Pipeline, Strategy, Table)):
            return Method(owner, name)
        if isinstance(owner, Seq):
            return calls.data_set_part(owner, name)
        if isinstance(owner, Unknown):
            if owner.name == "labkit.replicas" and name == "count":
                return Number(1, ("replicas",))
            return Unknown(f"{owner.name}.{name}" if owner.name else "")
        return Unknown()

    def of_tuple(self, node: ast.Tuple | ast.List) -> Any:
        return Seq(tuple(self.value(item) for item in node.elts))

    of_list = of_tuple

    def of_dict(self, node: ast.Dict) -> Any:
        return Table(
            tuple(
                (Unknown() if key is None else self.value(key), self.value(value))
                for key, value in zip(node.keys, node.values, strict=True)
            )
        )

    def of_subscript(self, node: ast.Subscript) -> Any:
        owner, key = self.value(node.value), self.value(node.slice)
        if isinstance(owner, Seq) and isinstance(key, Number) and not key.factors:
            place = int(key.value)
            if -len(owner.items) <= place < len(owner.items):
                return owner.items[place]
        if isinstance(owner, Table):
            return next((value for known, value in owner.items if known == key), Unknown())
        if isinstance(owner, (Array, Clock)):
            return owner
        if isinstance(owner, Unknown) and owner.name == "numpy.eye":
            return Array(one_hot=True)
        if isinstance(owner, Unknown) and isinstance(node.slice, (ast.Slice, ast.Tuple)):
            return owner
        return Unknown()

    def of_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(value, Number):
            return Number(-value.value, value.factors)
        return Unknown()

    def of_binop(self, node: ast.BinOp) -> Any:
        return combined(self, node.op, self.value(node.left), self.value(node.right), node)

    def of_boolop(self, node: ast.BoolOp) -> Any:
        return agreed([self.value(one) for one in node.values])

    def of_ifexp(self, node: ast.IfExp) -> Any:
        self.value(node.test)
        return agreed([self.value(node.body), self.value(node.orelse)])

    def of_namedexpr(self, node: ast.NamedExpr) -> Any:
        value = self.value(node.value)
        self.assign(node.target, value, node.value)
        return value

    def of_await(self, node: ast.Await) -> Any:
        return self.value(node.value)

    def of_lambda(self, node: ast.Lambda) -> Any:
        return defined(self, node)

    def of_yield(self, node: ast.Yield) -> Any:
        given = self.value(node.value) if node.value else Const(None)
        if self.yields:
            self.yields[-1](given)
        return Unknown()

    def of_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Any:
        return self._comprehended(node.generators, [node.elt])

    of_setcomp = of_generatorexp = of_listcomp

    def of_dictcomp(self, node: ast.DictComp) -> Any:
        return self._comprehended(node.generators, [node.key, node.value])

    def _comprehended(self, parts: Sequence[ast.comprehension], what: Sequence[ast.expr]) -> Any:
        outer, self.names = self.names, Names(self.names)
        self.loops += 1
        for part in parts:
            items = calls.items_of(self.value(part.iter))
            # The first of them stands for all.
            self.assign(part.target, items[0] if items else Unknown(), part.iter)
            for test in part.ifs:
                self.value(test)
        for one in what:
            self.value(one)
        self.loops -= 1
        self.names = outer
        return Unknown()

    def of_call(self, node: ast.Call) -> Any:
        func, owner, name = node.func, None, ""
        if isinstance(func, ast.Attribute):
            bound = self.names.get(ast.unparse(func))
            owner, name = self.value(func.value), func.attr
            called = self.attribute(owner, name) if isinstance(bound, Unknown) else bound
        else:
            called = self.value(func)
        args: list[Any] = []
        for one in node.args:
            value = self.value(one.value if isinstance(one, ast.Starred) else one)
            spread = isinstance(one, ast.Starred) and isinstance(value, Seq)
            args.extend(value.items if spread else [value])
        keywords = {one.arg: self.value(one.value) for one in node.keywords if one.arg is not None}
        return calls.call(self, node, called, owner, name, tuple(args), keywords)
