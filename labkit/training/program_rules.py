"""The rules of `diagnose` over the text of a program.

A program is read with Python's `ast` and never run. One visitor collects its assignments and calls
in the order of the lines; each rule is a method that yields (name of a defect, where).
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from labkit.kinds import LabError

__all__ = ["PASSES_ON", "Program"]


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


_CPU_CLOCKS = {"process_time", "process_time_ns", "thread_time", "thread_time_ns", "getrusage"}
_WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now"}
_STEADY_CLOCKS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "default_timer"}
_PREPARATION = {"to_categorical", "load_data", "from_tensor_slices", "one_hot"}
_PROBABILITIES = {"softmax", "sigmoid"}
# Layers that leave the kind of their input as it is.
PASSES_ON = {"Dropout", "Flatten", "Reshape", "Identity", "InputLayer"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Region(NamedTuple):
    """The lines between two readings of a clock."""

    clock: str
    first: ast.expr
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


def _tail(node: ast.AST) -> str:
    """The last part of a dotted name: `Dense` of `keras.layers.Dense`."""
    return getattr(node, "attr", getattr(node, "id", ""))


def _calls(nodes: Sequence[ast.AST], *names: str) -> list[ast.Call]:
    return [n for n in nodes if isinstance(n, ast.Call) and (not names or _tail(n.func) in names)]


def _argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    given = [keyword.value for keyword in call.keywords if keyword.arg == name]
    given += call.args[position : position + 1]
    return given[0] if given else None


class Program(ast.NodeVisitor):
    """A program's calls and assignments in the order of its lines, and the rules over them."""

    def __init__(self, code: Any) -> None:
        cells = _cells(code)
        self.magic = False
        self.lines: list[str] = []
        self.places: list[str] = []
        for number, cell in enumerate(cells, 1):
            text = self._without_magics(cell)
            self.lines += text.splitlines()
            cell_name = f"cell {number}, " if len(cells) > 1 else ""
            self.places += [f"{cell_name}line {n + 1}" for n in range(len(text.splitlines()))]
        try:
            self.tree = ast.parse("\n".join(self.lines))
        except SyntaxError as fault:
            where = self.places[min(fault.lineno or 1, len(self.lines)) - 1]
            raise LabError(f"Python cannot read {where}: {fault.msg}. Fix that first.") from None
        self.aliases: dict[str, str] = {}
        self.assigned: dict[str, list[tuple[int, ast.expr]]] = {}
        self.functions: dict[str, Function] = {}
        self.nodes: list[ast.AST] = []
        self.visit(self.tree)
        self.nodes.sort(key=lambda node: (_line(node), getattr(node, "col_offset", 0)))

    def _without_magics(self, cell: str) -> str:
        """Lines that Python cannot read become comments; %%time times the whole cell."""
        if cell.lstrip().startswith("%%"):
            self.magic = cell.lstrip().startswith("%%time")
            cell = "#" + cell.lstrip() if self.magic else "#" + cell.replace("\n", "\n#")
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
        elif isinstance(node, Function):
            self.functions[node.name] = node
        if hasattr(node, "lineno"):
            self.nodes.append(node)
        super().generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.assigned.setdefault(target.id, []).append((_line(value), value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            pairs = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
            for index, inner in enumerate(target.elts):
                self._assign(inner, value.elts[index] if pairs else value)  # type: ignore[attr-defined]

    def place(self, node: ast.AST) -> tuple[str, str]:
        """Where a node stands, and what is written there."""
        line = _line(node) - 1
        return self.places[line], self.lines[line].strip()

    def value(self, node: ast.expr | None, depth: int = 0) -> ast.expr | None:
        """What a name was last assigned above this line; anything else is its own value."""
        if not isinstance(node, ast.Name) or depth > 9:
            return node
        above = [v for line, v in self.assigned.get(node.id, []) if line < _line(node)]
        return self.value(above[-1], depth + 1) if above else node

    def clock(self, node: ast.AST) -> str:
        """Which clock this call reads: "cpu", "wall", "steady" or none."""
        if not isinstance(node, ast.Call):
            return ""
        first, _, rest = ast.unparse(node.func).partition(".")
        name = ".".join(filter(None, [self.aliases.get(first, first), rest]))
        name = name.replace("datetime.datetime.", "datetime.")
        tail = name.rpartition(".")[2]
        kinds = {"cpu": tail in _CPU_CLOCKS, "wall": name in _WALL_CLOCKS}
        return next(
            (k for k, yes in {**kinds, "steady": tail in _STEADY_CLOCKS}.items() if yes), ""
        )

    @cached_property
    def regions(self) -> list[Region]:
        """All pairs `start = clock()` … `clock() - start`."""
        found = []
        if self.magic:
            found.append(Region("steady", ast.Constant(0), 0, len(self.lines)))
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                first, last = self.value(node.right), self.value(node.left)
                for begin in ast.walk(first) if first else ():
                    if (kind := self.clock(begin)) and _line(begin) < _line(node) and last:
                        ends = [n for n in ast.walk(last) if self.clock(n)]
                        found += [Region(kind, first, _line(begin), _line(e)) for e in ends]  # type: ignore[arg-type]
        return found

    @cached_property
    def fits(self) -> list[Fit]:
        """All training calls."""
        cold: dict[str, int] = {}
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Assign) and self._makes_model(node.value):
                cold |= {ast.unparse(t): _line(node) for t in node.targets}
            for call in _calls([node], "fit", "train_on_batch", "compile"):
                if isinstance(call.func, ast.Attribute):
                    name = ast.unparse(call.func.value)
                    if call.func.attr == "compile":
                        cold[name] = _line(call)
                        continue
                    made = cold.pop(name, None)
                    first = made is not None and not self._repeats(call, made)
                    found.append(Fit(name, call, first))
        return found

    def _makes_model(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        function = self.functions.get(_tail(node.func))
        inside = list(ast.walk(function)) if function else [node]
        return bool(_calls(inside, "Sequential", "Model"))

    def _loops(self, node: ast.AST) -> list[ast.For | ast.While]:
        loops = [n for n in self.nodes if isinstance(n, (ast.For, ast.While))]
        return [n for n in loops if n.lineno < _line(node) <= (n.end_lineno or 0)]

    def _repeats(self, call: ast.Call, made: int) -> bool:
        """Whether a loop repeats the call without making the model again."""
        return any(not loop.lineno < made for loop in self._loops(call))

    def in_scope(self, node: ast.AST | None) -> bool:
        """Whether a statement stands inside `with strategy.scope():`."""
        withs = [n for n in self.nodes if isinstance(n, ast.With)]
        scopes = [w for w in withs if any(_calls([i.context_expr], "scope") for i in w.items)]
        return any(w.lineno <= _line(node) <= (w.end_lineno or 0) for w in scopes if node)

    def number(self, node: ast.expr | None) -> tuple[int, bool] | None:
        """A batch: its value, and whether it is multiplied by the number of replicas."""
        node = self.value(node)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value, False
        if _tail(node) == "num_replicas_in_sync" if node else False:
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

    # The rules: each yields (name of the defect, where).

    def defects(self) -> Iterator[tuple[str, ast.AST]]:
        """Everything that the rules find."""
        for rule in (
            self.timing,
            self.losses,
            self.batches,
            self.shuffles,
            self.doubles,
            self.rest,
        ):
            yield from rule()

    def timing(self) -> Iterator[tuple[str, ast.AST]]:
        """What is inside the timed regions, and how often they run."""
        once: dict[str, ast.AST] = {}
        steady = [r for r in self.regions if r.clock != "cpu"]
        for region in self.regions:
            fits = [fit for fit in self.fits if region.holds(fit.call)]
            inside = [node for node in self.nodes if region.holds(node)]
            beside = any(all(s.holds(f.call) for f in fits) for s in steady)
            if region.clock == "cpu" and not beside:
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
            if fits:
                inner = [r for r in self.regions if region.start < r.start and r.end < region.end]
                apart = [n for n in inside if not inner]
                yield from (("timed evaluation", c) for c in _calls(apart, "evaluate", "predict"))
                yield from (("timed preparation", c) for c in _calls(apart, *_PREPARATION))
            for name in self._graphs():
                calls = _calls(self.nodes, name)
                if calls and region.holds(calls[0]) and not self._loops(calls[0]):
                    yield "first epoch", calls[0]
        if len(once) > 1:
            yield "one run", list(once.values())[-1]

    def _graphs(self) -> set[str]:
        decorated = {n for n, f in self.functions.items() for d in f.decorator_list
                     if "tf.function" in ast.unparse(d)}  # fmt: skip
        return decorated | {n for n, values in self.assigned.items() for _, v in values
                            if "tf.function(" in ast.unparse(v)}  # fmt: skip

    def losses(self) -> Iterator[tuple[str, ast.AST]]:
        """Loss against last layer; the scale of a loss in a loop of one's own."""
        for call in _calls(self.nodes, "compile"):
            output = self._output(call)
            for node, loss in self._arguments(_argument(call, "loss", 1)):
                if output and (expects := self._expects(loss)) and expects != output:
                    yield "loss", node
        for run in _calls(self.nodes, "run"):
            step = self.functions.get(_tail(run.args[0])) if run.args else None
            body = list(ast.walk(step)) if step else []
            for called in _calls(body):
                body += list(ast.walk(self.functions.get(_tail(called.func), ast.Pass())))
            tapes = [
                n for n in body if isinstance(n, ast.With) and "GradientTape" in ast.unparse(n)
            ]
            if tapes and not self._scaled(body):
                yield "unscaled loss", tapes[0].body[-1]

    def _output(self, call: ast.Call) -> str:
        """What the last layer above this compile gives: "logits", "probabilities" or unknown."""
        above = [n for n in self.nodes if _line(n) < _line(call)]
        layer: ast.expr | None = None
        for made in _calls(above, "Sequential", "Model", "add"):
            last = _argument(made, "layers", 0)
            if _tail(made.func) == "Model":
                last = self.value(_argument(made, "outputs", 1))
            if isinstance(last, ast.List):
                layers = [n for n in last.elts if not _calls([n], *PASSES_ON)]
                layer = layers[-1] if layers else None
            elif last is not None and not _calls([last], *PASSES_ON):
                layer = last.func if isinstance(last, ast.Call) and isinstance(
                    last.func, ast.Call) else last  # fmt: skip
        if not isinstance(layer, ast.Call):
            return ""
        kind = _tail(layer.func)
        given = _argument(layer, "activation", 0 if kind == "Activation" else 1)
        activation = ast.unparse(given).strip("'\"").rpartition(".")[2] if given else "linear"
        if kind == "Softmax" or (kind in ("Dense", "Activation") and activation in _PROBABILITIES):
            return "probabilities"
        return "logits" if kind in ("Dense", "Activation") and activation == "linear" else ""

    def _arguments(self, loss: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr]]:
        """The loss of a compile; if it is a function's parameter, what each call passes for it."""
        for name, function in self.functions.items():
            names = [argument.arg for argument in function.args.args]
            within = function.lineno <= _line(loss) <= (function.end_lineno or 0) if loss else False
            if within and isinstance(loss, ast.Name) and loss.id in names:
                for call in _calls(self.nodes, name):
                    passed = self.value(_argument(call, loss.id, names.index(loss.id)))
                    if passed is not None:
                        yield call, passed
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

    def _scaled(self, body: Sequence[ast.AST]) -> bool:
        """Whether something divides by the global batch or by the number of replicas."""
        if _calls(body, "compute_average_loss", "scale_loss_for_distribution"):
            return True
        divisors = [n.right for n in body if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
        numbers = [(d, self.number(d)) for d in divisors]
        return any("global" in ast.unparse(d).lower() or (n and n[1]) for d, n in numbers)

    def batches(self) -> Iterator[tuple[str, ast.AST]]:
        """Batch and shuffling of the runs that are compared."""
        computed = [v for values in self.assigned.values() for _, v in values
                    if (n := self.number(v)) and n[1] and n[0] > 1]  # fmt: skip
        runs: dict[str, tuple[Any, bool | None, ast.AST]] = {}
        for fit in self.fits:
            data = _argument(fit.call, "x", 0)
            operations = self.chain(data)
            batch = next(iter(_calls(operations, "batch")), None)
            arrays = len(fit.call.args) > 1 or any(k.arg == "y" for k in fit.call.keywords)
            size = _argument(batch, "batch_size", 0) if batch else _argument(
                fit.call, "batch_size", 2)  # fmt: skip
            number = self.number(size) if size else ((32, False) if arrays else None)
            node = size or fit.call
            made = self.assigned.get(fit.model, [(0, None)])[-1][1]
            if computed and self.in_scope(made) and number and not number[1]:
                yield "batch", node
            kept = _argument(fit.call, "shuffle", 99)
            shuffles = bool(_calls(operations, "shuffle")) if batch else None
            if arrays:
                shuffles = not (isinstance(kept, ast.Constant) and kept.value is False)
            runs[fit.model] = (number, shuffles, batch or fit.call)  # the last fit of each model
        for (one, mixed, _), (two, also, where) in zip(
            list(runs.values()), list(runs.values())[1:], strict=False
        ):
            weak = "weak" in "\n".join(self.lines).lower()
            if one and two and one != two and not weak:
                yield "different batch", where
            if None not in (mixed, also) and mixed != also:
                yield "pipeline", where

    def shuffles(self) -> Iterator[tuple[str, ast.AST]]:
        """A shuffle that mixes less than it seems to."""
        for call in _calls(self.nodes, "shuffle", "cache"):
            below = self.chain(call)[1:]
            if _tail(call.func) == "cache":
                wrong = bool(_calls(below, "shuffle"))
            else:
                size = self.number(_argument(call, "buffer_size", 0))
                late = bool(_calls(below, "batch")) and not _calls(below, "unbatch", "shuffle")
                wrong = late or (size is not None and size[0] < 1000)
            if wrong:
                yield "shuffle", call

    def doubles(self) -> Iterator[tuple[str, ast.AST]]:
        """Bytes divided by a Python number become float64."""
        cast = {id(inner) for call in _calls(self.nodes, "astype", "cast")
                for inner in ast.walk(call)}  # fmt: skip
        for node in self.nodes:
            if (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Div)
                and id(node) not in cast
            ):
                scale = node.right.value if isinstance(node.right, ast.Constant) else None
                origin = self.value(self._root(node.left)) or node
                text = f"{ast.unparse(node.left)} {ast.unparse(origin)}"
                images = re.search(r"\bx_|load_data|datasets\.", text)
                if scale in (255, 127.5) and images and not re.search("astype|cast|float32", text):
                    yield "float64", node

    def _root(self, node: ast.expr) -> Any:
        while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
            node = node.func if isinstance(node, ast.Call) else node.value
        return node

    def rest(self) -> Iterator[tuple[str, ast.AST]]:
        """A model that is made without the strategy's scope."""
        made = _calls(self.nodes, "MirroredStrategy", "MultiWorkerMirroredStrategy", "strategy",
                      "CentralStorageStrategy", "ParameterServerStrategy")  # fmt: skip
        models = _calls(self.nodes, "Sequential")
        if made and models and not _calls(self.nodes, "scope"):
            yield "scope", models[0]
