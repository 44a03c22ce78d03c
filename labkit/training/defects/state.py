"""Where a reader is in a program, and what the names mean there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

from labkit.training.defects.names import Names
from labkit.training.defects.sources import Program
from labkit.training.defects.story import GlobalBatch, Story
from labkit.training.defects.values import (
    Array,
    Function,
    Instance,
    Number,
    Seq,
    Spot,
    Strategy,
    Unknown,
)

__all__ = ["State"]

_NO_BATCH = re.compile(
    r"step|rate|lr\b|learning|buffer|epoch|image|sample|worker|thread", re.IGNORECASE
)


class State:
    """Where a reader is, and what every name means there."""

    program: Program
    statements: Callable[[Sequence[ast.stmt]], bool]
    value: Callable[[ast.expr], Any]

    def __init__(self) -> None:
        self.story = Story()
        self.names = Names()
        self.scopes: list[Strategy] = []
        self.functions: list[Function] = []
        self.returned: list[list[Any]] = [[]]
        self.going: list[Any] = []
        self.yields: list[Callable[[Any], None]] = []
        self.loops = self.branches = self.at = self.steps = self.tracing = 0

    # Where we are

    def tick(self) -> int:
        """The next moment of the story."""
        self.at += 1
        return self.at

    def spot(self, node: ast.AST) -> Spot:
        line = getattr(node, "lineno", 1)
        return Spot(self.program.place(line), self.program.text(line))

    @property
    def at_top(self) -> bool:
        """Outside all functions."""
        return not self.going

    @property
    def scope(self) -> Strategy | None:
        """The strategy in whose scope we are."""
        return self.scopes[-1] if self.scopes else None

    # Assignment

    def assign_maybe(self, target: ast.expr | None, value: Any) -> None:
        if target is not None:
            self.assign(target, value, target)

    def assign(self, target: ast.expr, value: Any, source: ast.expr) -> None:
        """Bind a target, taking tuples apart."""
        if isinstance(target, (ast.Tuple, ast.List)):
            items = value.items if isinstance(value, Seq) else ()
            parts = source.elts if isinstance(source, (ast.Tuple, ast.List)) else ()
            fitting = len(items) == len(target.elts)
            for place, one in enumerate(target.elts):
                origin = parts[place] if place < len(parts) else source
                self.assign(one, items[place] if fitting else Unknown(), origin)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, Unknown(), source)
        elif isinstance(target, ast.Name):
            self.names.set(target.id, self._named(target.id, value, source))
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            held = owner.attributes if isinstance(owner, Instance) else self.names.values
            key = target.attr if isinstance(owner, Instance) else ast.unparse(target)
            held[key] = self._named(target.attr, value, source)

    def _named(self, name: str, value: Any, source: ast.expr) -> Any:
        if isinstance(value, Unknown) and not value.name:
            return Unknown(name)
        if isinstance(value, Array) and not value.name:
            value.name = name
        if isinstance(value, Number) and value.grows and not _NO_BATCH.search(name):
            words = f"{name} {ast.unparse(source)}".lower()
            whole = value.value == int(value.value)
            if whole and (value.value >= 8 or "batch" in words):
                self.story.global_batches.append(
                    GlobalBatch(self.tick(), self.spot(source), value, name)
                )
        return value
