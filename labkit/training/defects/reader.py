"""Follow a program without running it: names, functions, branches and loops become a story.

A function is followed where it is called, with what is known of its arguments. A loop over known
items is followed for each, any other loop once. Where two branches disagree, a value is unknown:
the rules speak only of what is sure.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from labkit.training.defects import calls
from labkit.training.defects.agreement import compared, merged
from labkit.training.defects.arithmetic import combined
from labkit.training.defects.expressions import Expressions
from labkit.training.defects.functions import Managed, defined, invoke, manage
from labkit.training.defects.names import Names, from_outside, imported
from labkit.training.defects.sources import Program
from labkit.training.defects.story import Region, Story
from labkit.training.defects.values import (
    Const,
    Dotted,
    Function,
    Instance,
    Klass,
    Number,
    Scope,
    Spot,
    Strategy,
    Text,
    Unknown,
)

__all__ = ["Reader", "read"]

STEPS = 60_000


class _Enough(Exception):
    """The program is too long to follow to its end."""


def read(programs: Sequence[Program]) -> Story:
    """The story of some cells, or of a program in one piece."""
    reader = Reader()
    reader.story.text = "\n".join("\n".join(program.lines) for program in programs)
    try:
        for program in programs:
            reader.follow(program)
        reader.follow_uncalled()
    except (_Enough, RecursionError):
        pass  # What was understood so far is still true.
    return reader.story


class Reader(Expressions):
    """The state of reading: where we are, and what every name means there."""

    def follow(self, program: Program) -> None:
        """One cell or program."""
        self.program = program
        for name, value in program.known.items():
            self.names.values.setdefault(name, from_outside(name, value))
        start, first = self.tick(), Spot(program.place(1), program.text(1))
        self.statements(program.tree.body)
        if program.timed_by_magic:
            self.story.regions.append(
                Region("%%time", start, self.tick(), first, first, self.loops)
            )

    def follow_uncalled(self) -> None:
        """Functions that nothing here calls: some other cell will."""
        while waiting := [function for function in self.functions if not function.called]:
            for function in waiting:
                invoke(self, function, (), {})

    def statements(self, body: Sequence[ast.stmt]) -> bool:
        """Follow them in order; False when they end in a return or the like."""
        return all(self.statement(statement) for statement in body)

    def statement(self, node: ast.stmt) -> bool:
        self.steps += 1
        if self.steps > STEPS:
            raise _Enough
        if isinstance(node, (ast.Break, ast.Continue, ast.Raise)):
            return False
        if isinstance(node, ast.Return):
            self.returned[-1].append(self.value(node.value) if node.value else Const(None))
            return False
        visit: Callable[[Any], bool | None] | None = getattr(
            self, f"on_{type(node).__name__.lower()}", None
        )
        if visit is not None:
            return visit(node) is not False
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
        return True

    # Names

    def on_import(self, node: ast.Import) -> None:
        for alias in node.names:
            shown = alias.asname or alias.name.partition(".")[0]
            path = alias.name if alias.asname else alias.name.partition(".")[0]
            self.names.set(shown, imported(path))

    def on_importfrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name != "*":
                path = f"{node.module or ''}.{alias.name}"
                self.names.set(alias.asname or alias.name, imported(path))

    def on_global(self, node: ast.Global) -> None:
        self.names.shared.update(node.names)

    on_nonlocal = on_global

    def on_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value, node.value)

    def on_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value), node.value)

    def on_augassign(self, node: ast.AugAssign) -> None:
        before, by = self.value(node.target), self.value(node.value)
        self.assign(node.target, combined(self, node.op, before, by, node), node.value)

    # Functions and classes

    def on_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        value: Any = defined(self, node)
        made = value
        for decorator in reversed(node.decorator_list):
            by = self.value(decorator)
            if isinstance(by, Dotted) and by.path == "tensorflow.function":
                made.traced = True
            elif isinstance(by, Dotted) and by.last in ("contextmanager", "asynccontextmanager"):
                made.manager = True
            elif isinstance(by, Function):
                value = invoke(self, by, (value,), {}) or value
        self.names.set(node.name, value if isinstance(value, (Function, Instance)) else made)

    on_asyncfunctiondef = on_functiondef

    def on_classdef(self, node: ast.ClassDef) -> None:
        bases = tuple(self.value(base) for base in node.bases)
        outer, self.names = self.names, Names(self.names)
        klass = Klass(bases=bases)
        known = len(self.functions)
        try:
            self.statements(node.body)
            klass.members = self.names.values
        finally:
            self.names = outer
        whole = Instance(klass)
        for function in self.functions[known:]:
            if function in klass.members.values():
                function.owner = whole
                function.names = outer
        self.names.set(node.name, klass)

    # Blocks

    def on_if(self, node: ast.If) -> bool:
        truth = self.truth(node.test)
        if truth is not None:
            return self.statements(node.body if truth else node.orelse)
        self.value(node.test)
        self.branches_of([node.body, node.orelse])
        return True

    def branches_of(self, bodies: Sequence[Sequence[ast.stmt]]) -> None:
        """Follow each as if the others were not, and keep what they agree on."""
        before = dict(self.names.values)
        after = []
        self.branches += 1
        for body in bodies:
            self.names.values = dict(before)
            self.statements(body)
            after.append(self.names.values)
        self.branches -= 1
        self.names.values = merged(after)

    def on_match(self, node: ast.Match) -> None:
        self.value(node.subject)
        self.branches_of([case.body for case in node.cases] + [[]])

    def on_try(self, node: ast.Try) -> None:
        self.statements(node.body)
        self.branches_of([[], *(handler.body for handler in node.handlers)])
        self.statements(node.orelse)
        self.statements(node.finalbody)

    on_trystar = on_try

    def on_for(self, node: ast.For | ast.AsyncFor) -> None:
        items = calls.items_of(self.value(node.iter))
        if items is not None:
            for item in items:
                self.assign(node.target, item, node.iter)
                self.statements(node.body)
        else:
            self.assign(node.target, Unknown(), node.iter)
            self.loops += 1
            self.statements(node.body)
            self.loops -= 1
        self.statements(node.orelse)

    on_asyncfor = on_for

    def on_while(self, node: ast.While) -> None:
        self.value(node.test)
        self.loops += 1
        self.statements(node.body)
        self.loops -= 1
        self.statements(node.orelse)

    def on_with(self, node: ast.With | ast.AsyncWith) -> bool:
        return self.within(node.items, node.body)

    on_asyncwith = on_with

    def within(self, items: Sequence[ast.withitem], body: Sequence[ast.stmt]) -> bool:
        """Enter the items one after the other, then the body, then leave them."""
        if not items:
            return self.statements(body)
        first, *rest = items
        entered = self.value(first.context_expr)
        target, going = first.optional_vars, True
        if isinstance(entered, Scope):
            self.scopes.append(entered.strategy)
            self.assign_maybe(target, entered)
            going = self.within(rest, body)
            self.scopes.pop()
        elif isinstance(entered, Managed):

            def go_on(given: Any) -> None:
                self.assign_maybe(target, given)
                self.within(rest, body)

            manage(self, entered, go_on)
        else:
            got = self.method(entered, "__enter__")
            self.assign_maybe(target, entered if got is None else got)
            going = self.within(rest, body)
            self.method(entered, "__exit__")
        return going

    def method(self, owner: Any, name: str) -> Any:
        """What a method of the program's own class gives, None if it has none or gives none."""
        function = owner.klass.members.get(name) if isinstance(owner, Instance) else None
        if not isinstance(function, Function):
            return None
        given = invoke(self, function, (), {}, owner=owner)
        return None if given == Const(None) else given

    def truth(self, test: ast.expr) -> bool | None:
        """Whether a test holds, if that can be known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.truth(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = self.value(test.left), self.value(test.comparators[0])
            return compared(test.ops[0], left, right)
        if isinstance(test, (ast.Name, ast.Attribute, ast.Constant)):
            value = self.value(test)
            if isinstance(value, (Const, Text)):
                return bool(value.value)
            if isinstance(value, (Strategy, Function, Klass)):
                return True
            if isinstance(value, Number) and not value.factors:
                return bool(value.value)
        return None
