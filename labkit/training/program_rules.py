"""The rules of `diagnose` over the text of a program, which is read with `ast` and never run.

A `Program` has all nodes in the order of the lines; each rule yields (name of a defect, where).
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from labkit.kinds import LabError

WRONG_CLOCKS = ("process_time", "thread_time", "time", "now")
STEADY_CLOCKS = ("perf_counter", "monotonic")
# Layers that leave the kind of their input as it is.
PASSES_ON = ("Dropout", "Flatten", "Reshape", "InputLayer")
FITS = ("fit", "train_on_batch")


def mismatch(activation: str, loss: str, from_logits: bool) -> bool:
    """Whether a loss expects logits and the last layer gives probabilities, or the reverse."""
    wrong = ("softmax", "sigmoid") if from_logits else ("linear",)
    return loss.lower().endswith("crossentropy") and activation in wrong


class Region(NamedTuple):
    """The lines between two readings of a clock."""

    first: ast.Call
    last: ast.AST

    @property
    def clock(self) -> str:
        """Its name, such as `perf_counter`."""
        return _tail(self.first.func)

    def holds(self, node: ast.AST) -> bool:
        """Whether this part of the program is timed."""
        return _line(self.first) < _line(node) <= _line(self.last)


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _within(node: ast.AST, outer: Any) -> bool:
    return bool(outer.lineno <= _line(node) <= outer.end_lineno)


def _tail(node: ast.AST | None) -> str:
    """The last part of a dotted name: `Dense` of `keras.layers.Dense`."""
    return getattr(node, "attr", getattr(node, "id", ""))


def _last_word(node: ast.expr | None) -> str:
    """`softmax`, whether it is written "softmax" or tf.nn.softmax."""
    return ast.unparse(node).strip("'\"").rpartition(".")[2] if node else ""


def _calls(nodes: Iterable[ast.AST], *names: str) -> list[ast.Call]:
    return [n for n in nodes if isinstance(n, ast.Call) and (not names or _tail(n.func) in names)]


def _argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    given = [keyword.value for keyword in call.keywords if keyword.arg == name]
    given += call.args[position : position + 1]
    return given[0] if given else None


def _divisions(nodes: Iterable[ast.AST]) -> list[ast.BinOp]:
    return [n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]


class Program:
    """A program's nodes in the order of its lines, what they assign, and the rules over them."""

    def __init__(self, code: Any) -> None:
        cells = [cell.splitlines() for cell in _cells(code)]
        self.lines = [line for cell in cells for line in cell]
        self.places = [
            f"cell {number}, line {n}" if len(cells) > 1 else f"line {n}"
            for number, cell in enumerate(cells, 1)
            for n in range(1, len(cell) + 1)
        ]
        try:
            tree = ast.parse("\n".join(self.lines))
        except SyntaxError as fault:
            where = self.places[min(fault.lineno or 1, len(self.lines)) - 1]
            raise LabError(f"Python cannot read {where}: {fault.msg}. Fix that first.") from None
        self.nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
        self.nodes.sort(key=lambda node: (_line(node), getattr(node, "col_offset", 0)))
        self.functions = {n.name: n for n in self.nodes if isinstance(n, ast.FunctionDef)}
        self.assigned: dict[str, list[ast.expr]] = {}
        for assign in (node for node in self.nodes if isinstance(node, ast.Assign)):
            for name in ast.walk(ast.List(assign.targets)):
                if isinstance(name, ast.Name):
                    self.assigned.setdefault(name.id, []).append(assign.value)

    def place(self, node: ast.AST) -> tuple[str, str]:
        """Where a node stands, and what is written there."""
        return self.places[_line(node) - 1], self.lines[_line(node) - 1].strip()

    def value(self, node: Any) -> Any:
        """What a name was last assigned above this line; anything else is its own value."""
        if not isinstance(node, ast.Name):
            return node
        values = self.assigned.get(node.id, [])
        above = [value for value in values if (value.end_lineno or 0) < _line(node)]
        return self.value(above[-1]) if above else node

    def number(self, node: ast.expr | None) -> tuple[int, bool] | None:
        """A batch: its value, and whether it is multiplied by the number of replicas."""
        node = self.value(node)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value, False
        if _tail(node) == "num_replicas_in_sync":
            return 1, True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            a, b = self.number(node.left), self.number(node.right)
            return (a[0] * b[0], a[1] or b[1]) if a and b else None
        return None

    def chain(self, node: ast.expr | None) -> list[ast.Call]:
        """The calls of a tf.data pipeline, the last first: batch, shuffle, from_tensor_slices."""
        node = self.value(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return [node, *self.chain(node.func.value)]
        return []

    def loops(self, node: ast.AST) -> list[ast.AST]:
        """The loops that repeat this node."""
        loops = [n for n in self.nodes if isinstance(n, (ast.For, ast.While))]
        return [loop for loop in loops if loop.lineno < _line(node) and _within(node, loop)]

    def in_scope(self, node: ast.AST) -> bool:
        """Whether a statement stands inside `with strategy.scope():`."""
        withs = [n for n in self.nodes if isinstance(n, ast.With)]
        scopes = [w for w in withs if _calls([item.context_expr for item in w.items], "scope")]
        return any(_within(node, scope) for scope in scopes)

    def regions(self) -> list[Region]:
        """All pairs `start = clock()` … `clock() - start`."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                first, last = (
                    _calls(ast.walk(self.value(side)), *WRONG_CLOCKS, *STEADY_CLOCKS)
                    for side in (node.right, node.left)
                )
                if first and last and _line(first[0]) < _line(node):
                    found.append(Region(first[0], last[0]))
        return found

    # The rules: each yields (name of the defect, where).

    def defects(self) -> Iterator[tuple[str, ast.AST]]:
        """Everything that the rules find."""
        yield from self._timing()
        yield from self._losses()
        yield from self._batches()
        yield from self._shuffles()
        yield from self._doubles()
        models = _calls(self.nodes, "Sequential")
        strategies = [c for c in _calls(self.nodes) if _tail(c.func).lower().endswith("strategy")]
        if models and strategies and not _calls(self.nodes, "scope"):
            yield "scope", models[0]

    def _timing(self) -> Iterator[tuple[str, ast.AST]]:
        """What is inside the timed regions, and how often they run."""
        first_calls, regions = self._first_calls(), self.regions()
        steady = [region for region in regions if region.clock in STEADY_CLOCKS]
        once: dict[str, ast.Call] = {}  # of each model, the timed training that no loop repeats
        for region in regions:
            fits = [fit for fit in _calls(self.nodes, *FITS) if region.holds(fit)]
            # CPU time beside the time of a right clock is information.
            beside = any(all(other.holds(fit) for fit in fits) for other in steady)
            if region.clock in WRONG_CLOCKS and not beside:
                yield "clock", region.first
            # A loop that repeats the region without making the model again warms it up.
            begun = [_line(loop) for loop in self.loops(region.first)]
            for made, call in first_calls:
                if region.holds(call) and not any(line > made for line in begun):
                    yield "first epoch", call
            for fit in fits:
                if {"validation_data", "validation_split"} & {word.arg for word in fit.keywords}:
                    yield "timed evaluation", fit
                if not self.loops(fit):
                    once.setdefault(ast.unparse(fit.func), fit)
            for call in _calls(self.nodes, "evaluate", "predict"):
                if fits and region.holds(call):
                    yield "timed evaluation", call
        if len(once) > 1:
            yield "one run", list(once.values())[-1]

    def _first_calls(self) -> list[tuple[int, ast.Call]]:
        """With the line where a model was made and then fit, or a tf.function and then called."""
        made: dict[str, int] = {}
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                function = self.functions.get(_tail(node.value.func))
                if _calls(ast.walk(function or node.value), "Sequential", "Model"):
                    made |= {ast.unparse(target): _line(node) for target in node.targets}
            elif isinstance(node, ast.FunctionDef):
                if "tf.function" in " ".join(map(ast.unparse, node.decorator_list)):
                    made[node.name] = _line(node)
            elif isinstance(node, ast.Call):
                name, _, method = ast.unparse(node.func).rpartition(".")
                called = name if method in FITS else ast.unparse(node.func)
                if name and method == "compile":
                    made[name] = _line(node)
                elif called in made:
                    found.append((made.pop(called), node))
        return found

    def _losses(self) -> Iterator[tuple[str, ast.AST]]:
        """Loss against last layer; the scale of a loss in a custom loop."""
        for call in _calls(self.nodes, "compile"):
            given = _argument(call, "loss", 1)
            loss = self.value(given)
            named, flag = loss, None
            if isinstance(loss, ast.Call):
                named, flag = loss.func, _argument(loss, "from_logits", 0)
            known = isinstance(flag, (ast.Constant, type(None))) and not isinstance(loss, ast.Name)
            name, logits = _last_word(named), getattr(flag, "value", False)
            if known and mismatch(self._activation(call), name, logits):
                yield "loss", given or call
        if _calls(self.nodes, "ParameterServerStrategy"):
            return  # its workers' gradients are applied one by one, not summed
        for run in _calls(self.nodes, "run"):
            step = self.functions.get(_tail(run.args[0])) if run.args else None
            body = list(ast.walk(step)) if step else []
            for called in _calls(body):
                body += ast.walk(self.functions.get(_tail(called.func), ast.Pass()))
            withs = [node for node in body if isinstance(node, ast.With)]
            tapes = [node for node in withs if "GradientTape" in ast.unparse(node.items[0])]
            if tapes and not self._is_scaled(body):
                yield "unscaled loss", tapes[0].body[-1]

    def _activation(self, compiled: ast.Call) -> str:
        """Of the last layer of the Sequential above this compile, if that is Dense."""
        above = [node for node in self.nodes if _line(node) < _line(compiled)]
        made = _calls(above, "Sequential", "Model", "add")[-1:]
        # Only a list of layers shows the last one; diagnose(model=...) knows every model.
        layers = self.value(_argument(made[0], "layers", 0)) if _calls(made, "Sequential") else None
        last = [one for one in getattr(layers, "elts", []) if not _calls([one], *PASSES_ON)][-1:]
        if not _calls(last, "Dense"):
            return ""
        return _last_word(_argument(last[0], "activation", 1)) or "linear"

    def _is_scaled(self, body: Sequence[ast.AST]) -> bool:
        """Whether something divides by the global batch or by the number of replicas."""
        divisors = [division.right for division in _divisions(body)]
        return bool(_calls(body, "compute_average_loss", "scale_loss_for_distribution")) or any(
            "global" in ast.unparse(divisor).lower() or (self.number(divisor) or (0, False))[1]
            for divisor in divisors
        )

    def _batches(self) -> Iterator[tuple[str, ast.AST]]:
        """Batch and shuffling of the runs that are compared."""
        numbers = [self.number(value) for values in self.assigned.values() for value in values]
        has_global_batch = any(n and n[1] and n[0] > 1 for n in numbers)
        runs: dict[str, tuple[Any, bool | None, ast.AST]] = {}  # of each model the last fit
        for fit in _calls(self.nodes, "fit"):
            model = ast.unparse(fit.func).rpartition(".")[0]
            operations = self.chain(_argument(fit, "x", 0))
            batch = next(iter(_calls(operations, "batch")), None)
            arrays = _argument(fit, "y", 1) is not None
            size = _argument(batch, "batch_size", 0) if batch else _argument(fit, "batch_size", 2)
            number = self.number(size) if size else (32, False) if arrays else None
            made = self.assigned.get(model, [fit])[-1]
            if has_global_batch and self.in_scope(made) and number and not number[1]:
                yield "batch", size or fit
            shuffles = bool(_calls(operations, "shuffle")) if batch else None
            if arrays:
                shuffles = getattr(_argument(fit, "shuffle", 99), "value", True) is not False
            runs[model] = (number, shuffles, batch or fit)
        weak = "weak" in "\n".join(self.lines).lower()
        for (one, mixed, _), (two, also_mixed, where) in pairwise(runs.values()):
            if one and two and one != two and not weak:
                yield "different batch", where
            if None not in (mixed, also_mixed) and mixed != also_mixed:
                yield "pipeline", where

    def _shuffles(self) -> Iterator[tuple[str, ast.AST]]:
        """A shuffle that mixes less than it seems to."""
        for call in _calls(self.nodes, "shuffle"):
            before = self.chain(call)[1:]
            size = self.number(_argument(call, "buffer_size", 0))
            whole_batches = _calls(before, "batch") and not _calls(before, "unbatch", "shuffle")
            if whole_batches or (size and size[0] < 1000):
                yield "shuffle", call
        for call in _calls(self.nodes, "cache"):
            if _calls(self.chain(call)[1:], "shuffle"):
                yield "shuffle", call

    def _doubles(self) -> Iterator[tuple[str, ast.AST]]:
        """Bytes divided by a Python number become float64."""
        for division in _divisions(self.nodes):
            names = [n for n in ast.walk(division.left) if isinstance(n, ast.Name)]
            origins = [ast.unparse(self.value(name)) for name in names]
            text = " ".join([self.place(division)[1], *origins])
            images = re.search(r"\bx_|load_data|datasets\.", text)
            converted = re.search("astype|cast|float32", text)
            if getattr(division.right, "value", 0) in (255, 127.5) and images and not converted:
                yield "float64", division


def _cells(code: Any) -> list[str]:
    if isinstance(code, str):
        return [code]
    if isinstance(code, Sequence) and all(isinstance(cell, str) for cell in code):
        return list(code)
    try:
        return [textwrap.dedent(inspect.getsource(inspect.unwrap(code)))]
    except (TypeError, OSError):
        raise LabError(
            f"code must be Python text, a function of yours or a list of cells, got {code!r:.80}."
        ) from None
