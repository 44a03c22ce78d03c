"""The rules of `diagnose` over the text of a program, which is read with `ast` and never run.

One visitor collects calls and assignments in the order of the lines; each rule is a method that
yields (name of a defect, where).
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from labkit.kinds import LabError

__all__ = ["PASSES_ON", "Program"]

_CLOCKS = {
    **dict.fromkeys(("process_time", "process_time_ns", "thread_time", "getrusage"), "cpu"),
    **dict.fromkeys(("perf_counter", "perf_counter_ns", "monotonic", "default_timer"), "steady"),
    **dict.fromkeys(("time.time", "time.time_ns", "datetime.now", "datetime.datetime.now"), "wall"),
}
# Layers that leave the kind of their input as it is.
PASSES_ON = {"Dropout", "Flatten", "Reshape", "Identity", "InputLayer"}
_STRATEGIES = (
    "MirroredStrategy", "MultiWorkerMirroredStrategy", "CentralStorageStrategy",
    "ParameterServerStrategy", "strategy",
)  # fmt: skip


class Region(NamedTuple):
    """The lines between two readings of a clock."""

    clock: str
    first: ast.AST
    start: int
    end: int

    def holds(self, node: ast.AST) -> bool:
        """Whether this part of the program is timed."""
        return self.start < _line(node) <= self.end


class Fit(NamedTuple):
    """A training call: the name of its model, and whether it is the first since compile."""

    model: str
    call: ast.Call
    cold: bool


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _within(node: ast.AST, outer: Any) -> bool:
    return bool(outer.lineno <= _line(node) <= outer.end_lineno)


def _tail(node: ast.AST | None) -> str:
    """The last part of a dotted name: `Dense` of `keras.layers.Dense`."""
    return getattr(node, "attr", getattr(node, "id", ""))


def _calls(nodes: Iterable[ast.AST], *names: str) -> list[ast.Call]:
    return [n for n in nodes if isinstance(n, ast.Call) and (not names or _tail(n.func) in names)]


def _argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    given = [keyword.value for keyword in call.keywords if keyword.arg == name]
    given += call.args[position : position + 1]
    return given[0] if given else None


def _divisions(nodes: Iterable[ast.AST]) -> list[ast.BinOp]:
    return [n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]


class Program(ast.NodeVisitor):
    """A program's calls and assignments in the order of its lines, and the rules over them."""

    def __init__(self, code: Any) -> None:
        self.timed_cell = False  # %%time
        self.lines: list[str] = []
        self.places: list[str] = []
        cells = _cells(code)
        for number, cell in enumerate(cells, 1):
            lines = self._without_magics(cell).splitlines()
            prefix = f"cell {number}, " if len(cells) > 1 else ""
            self.lines += lines
            self.places += [f"{prefix}line {n}" for n in range(1, len(lines) + 1)]
        try:
            tree = ast.parse("\n".join(self.lines))
        except SyntaxError as fault:
            where = self.places[min(fault.lineno or 1, len(self.lines)) - 1]
            raise LabError(f"Python cannot read {where}: {fault.msg}. Fix that first.") from None
        self.aliases: dict[str, str] = {}
        self.assigned: dict[str, list[tuple[int, ast.expr]]] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.nodes: list[ast.AST] = []
        self.visit(tree)
        self.nodes.sort(key=lambda node: (_line(node), getattr(node, "col_offset", 0)))

    def _without_magics(self, cell: str) -> str:
        """Lines that Python cannot read become comments; %%time times the whole cell."""
        if cell.lstrip().startswith("%%"):
            self.timed_cell = cell.lstrip().startswith("%%time")
            cell = "#" + cell.lstrip() if self.timed_cell else "#" + cell.replace("\n", "\n#")
        with suppress(SyntaxError):
            ast.parse(cell)  # a line may begin with the % of a formatted string
            return cell
        return re.sub(r"^(\s*)([%!].*)$", r"\1pass  # \2", cell, flags=re.MULTILINE)

    def generic_visit(self, node: ast.AST) -> None:
        """Collect every node that has a line, and what is assigned to which name."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            self.aliases |= {a.asname or a.name: origin + a.name for a in node.names}
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.FunctionDef):
            self.functions[node.name] = node
        if hasattr(node, "lineno"):
            self.nodes.append(node)
        super().generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.assigned.setdefault(target.id, []).append((_line(value), value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = [value] * len(target.elts)
            if isinstance(value, ast.Tuple) and len(value.elts) == len(values):
                values = value.elts
            for inner, part in zip(target.elts, values, strict=True):
                self._assign(inner, part)

    def place(self, node: ast.AST) -> tuple[str, str]:
        """Where a node stands, and what is written there."""
        return self.places[_line(node) - 1], self.lines[_line(node) - 1].strip()

    def value(self, node: ast.expr | None, depth: int = 0) -> ast.expr | None:
        """What a name was last assigned above this line; anything else is its own value."""
        if not isinstance(node, ast.Name) or depth > 9:
            return node
        above = [v for line, v in self.assigned.get(node.id, []) if line < _line(node)]
        return self.value(above[-1], depth + 1) if above else node

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

    def clock(self, node: ast.AST) -> str:
        """Which clock this call reads: "cpu", "wall", "steady" or none."""
        if not isinstance(node, ast.Call):
            return ""
        first, _, rest = ast.unparse(node.func).partition(".")
        name = ".".join(filter(None, [self.aliases.get(first, first), rest]))
        return _CLOCKS.get(name.rpartition(".")[2], _CLOCKS.get(name, ""))

    @cached_property
    def regions(self) -> list[Region]:
        """All pairs `start = clock()` … `clock() - start`."""
        found = []
        if self.timed_cell:
            found.append(Region("steady", ast.Constant(0), 0, len(self.lines)))
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                first, last = self.value(node.right), self.value(node.left)
                begins = [n for n in ast.walk(first) if self.clock(n)] if first else []
                ends = [n for n in ast.walk(last) if self.clock(n)] if last else []
                found += [
                    Region(self.clock(begin), begin, _line(begin), _line(end))
                    for begin in begins for end in ends if _line(begin) < _line(node)
                ]  # fmt: skip
        return found

    @cached_property
    def fits(self) -> list[Fit]:
        """All training calls."""
        made: dict[str, int] = {}  # the line where a model was made or compiled, until it is fit
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Assign) and self._makes_model(node.value):
                made |= {ast.unparse(target): _line(node) for target in node.targets}
            for call in _calls([node], "fit", "train_on_batch", "compile"):
                if not isinstance(call.func, ast.Attribute):
                    continue
                name = ast.unparse(call.func.value)
                if call.func.attr == "compile":
                    made[name] = _line(call)
                    continue
                line = made.pop(name, None)
                # A loop that repeats the call without making the model again warms it up.
                cold = line is not None and all(loop.lineno < line for loop in self._loops(call))
                found.append(Fit(name, call, cold))
        return found

    def _makes_model(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        function = self.functions.get(_tail(node.func))
        return bool(_calls(ast.walk(function) if function else [node], "Sequential", "Model"))

    def _loops(self, node: ast.AST) -> list[ast.For | ast.While]:
        loops = [n for n in self.nodes if isinstance(n, (ast.For, ast.While))]
        return [loop for loop in loops if loop.lineno < _line(node) and _within(node, loop)]

    def in_scope(self, node: ast.AST | None) -> bool:
        """Whether a statement stands inside `with strategy.scope():`."""
        withs = [n for n in self.nodes if isinstance(n, ast.With)]
        scopes = [w for w in withs if _calls([item.context_expr for item in w.items], "scope")]
        return node is not None and any(_within(node, scope) for scope in scopes)

    # The rules: each yields (name of the defect, where).

    def defects(self) -> Iterator[tuple[str, ast.AST]]:
        """Everything that the rules find."""
        yield from self._timing()
        yield from self._losses()
        yield from self._batches()
        yield from self._shuffles()
        yield from self._doubles()
        models = _calls(self.nodes, "Sequential")
        if models and _calls(self.nodes, *_STRATEGIES) and not _calls(self.nodes, "scope"):
            yield "scope", models[0]

    def _timing(self) -> Iterator[tuple[str, ast.AST]]:
        """What is inside the timed regions, and how often they run."""
        once: dict[str, ast.AST] = {}
        steady = [region for region in self.regions if region.clock != "cpu"]
        for region in self.regions:
            fits = [fit for fit in self.fits if region.holds(fit.call)]
            if region.clock == "cpu" and not any(
                all(other.holds(fit.call) for fit in fits) for other in steady
            ):
                yield "clock", region.first
            if region.clock == "wall":
                yield "wall clock", region.first
            for fit in fits:
                if fit.cold:
                    yield "first epoch", fit.call
                if any(k.arg in ("validation_data", "validation_split") for k in fit.call.keywords):
                    yield "timed evaluation", fit.call
                if not self._loops(fit.call):
                    once.setdefault(fit.model, fit.call)
            nested = any(region.start < r.start and r.end < region.end for r in self.regions)
            if fits and not nested:
                inside = [node for node in self.nodes if region.holds(node)]
                yield from (("timed evaluation", c) for c in _calls(inside, "evaluate", "predict"))
            for name in self._graphs():
                calls = _calls(self.nodes, name)
                if calls and region.holds(calls[0]) and not self._loops(calls[0]):
                    yield "first epoch", calls[0]
        if len(once) > 1:
            yield "one run", list(once.values())[-1]

    def _graphs(self) -> list[str]:
        """Functions that TensorFlow traces when they are first called."""
        return [
            name
            for name, function in self.functions.items()
            if any("tf.function" in ast.unparse(d) for d in function.decorator_list)
        ]

    def _losses(self) -> Iterator[tuple[str, ast.AST]]:
        """Loss against last layer; the scale of a loss in a custom loop."""
        for call in _calls(self.nodes, "compile"):
            output = self._output(call)
            for node, loss in self._passed(_argument(call, "loss", 1)):
                if output and (expects := self._expects(loss)) and expects != output:
                    yield "loss", node
        for run in _calls(self.nodes, "run"):
            step = self.functions.get(_tail(run.args[0])) if run.args else None
            body = list(ast.walk(step)) if step else []
            for called in _calls(body):
                body += ast.walk(self.functions.get(_tail(called.func), ast.Pass()))
            withs = [node for node in body if isinstance(node, ast.With)]
            tapes = [node for node in withs if "GradientTape" in ast.unparse(node.items[0])]
            if tapes and not self._is_scaled(body):
                yield "unscaled loss", tapes[0].body[-1]

    def _output(self, compiled: ast.Call) -> str:
        """What the last layer above this compile gives: "logits", "probabilities" or unknown."""
        layer: ast.expr | None = None
        above = [node for node in self.nodes if _line(node) < _line(compiled)]
        for made in _calls(above, "Sequential", "Model", "add"):
            last = _argument(made, "layers", 0)
            if _tail(made.func) == "Model":
                last = self.value(_argument(made, "outputs", 1))
                if isinstance(last, ast.Call) and isinstance(last.func, ast.Call):
                    last = last.func  # Dense(10) of Dense(10)(x)
            layers = last.elts if isinstance(last, ast.List) else [last] if last else []
            layers = [one for one in layers if not _calls([one], *PASSES_ON)]
            layer = layers[-1] if layers else layer
        kind = _tail(layer.func) if isinstance(layer, ast.Call) else ""
        if kind not in ("Dense", "Activation", "Softmax") or not isinstance(layer, ast.Call):
            return ""
        given = _argument(layer, "activation", 0 if kind == "Activation" else 1)
        activation = ast.unparse(given).strip("'\"").rpartition(".")[2] if given else "linear"
        if kind == "Softmax" or activation in ("softmax", "sigmoid"):
            return "probabilities"
        return "logits" if activation == "linear" else ""

    def _passed(self, loss: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr]]:
        """The loss of a compile; if it is a function's parameter, what each call passes for it."""
        for name, function in self.functions.items():
            names = [argument.arg for argument in function.args.args]
            if isinstance(loss, ast.Name) and loss.id in names and _within(loss, function):
                for call in _calls(self.nodes, name):
                    value = self.value(_argument(call, loss.id, names.index(loss.id)))
                    if value is not None:
                        yield call, value
                return
        value = self.value(loss)
        if loss is not None and value is not None:
            yield loss, value

    def _expects(self, loss: ast.expr) -> str:
        if isinstance(loss, ast.Constant):
            return "probabilities" if str(loss.value).endswith("crossentropy") else ""
        if isinstance(loss, ast.Call) and _tail(loss.func).endswith("Crossentropy"):
            flag = _argument(loss, "from_logits", 0)
            if flag is None or isinstance(flag, ast.Constant):
                return "logits" if flag is not None and flag.value else "probabilities"
        return ""

    def _is_scaled(self, body: Sequence[ast.AST]) -> bool:
        """Whether something divides by the global batch or by the number of replicas."""
        if _calls(body, "compute_average_loss", "scale_loss_for_distribution"):
            return True
        divisors = [division.right for division in _divisions(body)]
        return any(
            "global" in ast.unparse(divisor).lower() or (self.number(divisor) or (0, False))[1]
            for divisor in divisors
        )

    def _batches(self) -> Iterator[tuple[str, ast.AST]]:
        """Batch and shuffling of the runs that are compared."""
        numbers = [self.number(v) for values in self.assigned.values() for _, v in values]
        has_global_batch = any(n and n[1] and n[0] > 1 for n in numbers)
        runs: dict[str, tuple[Any, bool | None, ast.AST]] = {}  # of each model the last fit
        for fit in self.fits:
            operations = self.chain(_argument(fit.call, "x", 0))
            batch = next(iter(_calls(operations, "batch")), None)
            arrays = _argument(fit.call, "y", 1) is not None
            size = _argument(fit.call, "batch_size", 2)
            if batch:
                size = _argument(batch, "batch_size", 0)
            number = self.number(size) if size else (32, False) if arrays else None
            made = self.assigned.get(fit.model, [(0, None)])[-1][1]
            if has_global_batch and self.in_scope(made) and number and not number[1]:
                yield "batch", size or fit.call
            shuffles = bool(_calls(operations, "shuffle")) if batch else None
            if arrays:
                flag = _argument(fit.call, "shuffle", 99)
                shuffles = not (isinstance(flag, ast.Constant) and flag.value is False)
            runs[fit.model] = (number, shuffles, batch or fit.call)
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
            late = _calls(before, "batch") and not _calls(before, "unbatch", "shuffle")
            if late or (size is not None and size[0] < 1000):
                yield "shuffle", call
        for call in _calls(self.nodes, "cache"):
            if _calls(self.chain(call)[1:], "shuffle"):
                yield "shuffle", call

    def _doubles(self) -> Iterator[tuple[str, ast.AST]]:
        """Bytes divided by a Python number become float64."""
        cast = {id(n) for call in _calls(self.nodes, "astype", "cast") for n in ast.walk(call)}
        for division in _divisions(self.nodes):
            scale, root = division.right, division.left
            while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
                root = root.func if isinstance(root, ast.Call) else root.value
            origin = self.value(root)
            text = f"{ast.unparse(division.left)} {ast.unparse(origin) if origin else ''}"
            images = re.search(r"\bx_|load_data|datasets\.", text)
            bytes_scale = isinstance(scale, ast.Constant) and scale.value in (255, 127.5)
            converted = id(division) in cast or re.search("astype|cast|float32", text)
            if bytes_scale and images and not converted:
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
