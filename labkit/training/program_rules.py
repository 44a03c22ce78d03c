"""The rules of `diagnose` over the text of a program, which is read with `ast` and never run.

A rule takes one expression, puts what names were assigned in their place, and looks at its text:

>>> program = Program(["BATCH = 32", "data = data.shuffle(10)", "model.fit(data.batch(BATCH))"])
>>> program.text(program.calls("fit")[0])
'model.fit(data.shuffle(10).batch(32))'
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from labkit.kinds import LabError

CLOCK = r"(?:\w+\.)*(process_time|time|perf_counter|monotonic)\(\)"
LOSS = r"(?i)\b((sparse_?)?categorical|binary)_?crossentropy\b"
SCALED = "(?i)compute_average_loss|scale_loss|global|num_replicas"
IMAGES, CONVERTED = r"\bx_|load_data|datasets\.", "astype|cast|float32"


def mismatch(activation: str, loss: str, logits: bool) -> bool:
    """Whether a loss expects logits and the last layer gives probabilities, or the reverse."""
    wrong = ("softmax", "sigmoid") if logits else ("linear",)
    return bool(re.search(LOSS, loss)) and activation.lower() in wrong


class Program:
    """The nodes of a program in the order of its lines, and what they assign."""

    def __init__(self, cells: list[str]) -> None:
        parts = [cell.splitlines() for cell in cells]
        self.lines = [line for part in parts for line in part]
        self.places = [
            f"cell {number}, line {n}" if len(parts) > 1 else f"line {n}"
            for number, part in enumerate(parts, 1)
            for n in range(1, len(part) + 1)
        ]
        try:
            tree = ast.parse("\n".join(self.lines))
        except SyntaxError as fault:
            where = self.places[min(fault.lineno or 1, len(self.lines)) - 1]
            raise LabError(f"Python cannot read {where}: {fault.msg}. Fix that first.") from None
        self.nodes: list[Any] = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
        self.nodes.sort(key=lambda node: (node.lineno, node.col_offset))
        self.functions = {n.name: n for n in self.nodes if isinstance(n, ast.FunctionDef)}
        self.assigned: dict[str, list[ast.expr]] = {}
        for assign in (node for node in self.nodes if isinstance(node, ast.Assign)):
            for name in ast.walk(ast.List(assign.targets)):
                if isinstance(name, ast.Name):
                    self.assigned.setdefault(name.id, []).append(assign.value)

    def calls(self, *names: str) -> list[ast.Call]:
        """All calls of functions or methods with one of these names, the first line first."""
        return [n for n in self.nodes if isinstance(n, ast.Call) and _name(n) in names]

    def place(self, node: Any) -> tuple[str, str]:
        """Where a node stands, and what is written there."""
        return self.places[node.lineno - 1], self.lines[node.lineno - 1].strip()

    def value(self, node: Any) -> Any:
        """What a name was last assigned above this line; anything else is its own value."""
        values = self.assigned.get(node.id, []) if isinstance(node, ast.Name) else []
        above = [value for value in values if (value.end_lineno or 0) < node.lineno]
        return self.value(above[-1]) if above else node

    def text(self, node: Any, depth: int = 5) -> str:
        """An expression, with what its names were assigned in their place."""

        class Assigned(ast.NodeTransformer):
            def visit_Name(_, name: ast.Name) -> Any:  # noqa: N805
                value = self.value(name) if isinstance(name.ctx, ast.Load) and depth else name
                return name if value is name else ast.Name(self.text(value, depth - 1))

            def visit_Attribute(self, name: ast.Attribute) -> Any:
                return name if name.attr == "num_replicas_in_sync" else self.generic_visit(name)

        return ast.unparse(Assigned().visit(copy.deepcopy(node)))

    def in_loop(self, node: Any, after: int = 0) -> bool:
        """Whether a loop that begins after this line repeats a node."""
        loops = [n for n in self.nodes if isinstance(n, (ast.For, ast.While))]
        return any(after < loop.lineno and _inside(node, loop) for loop in loops)

    def defects(self) -> Iterator[tuple[str, Any]]:
        """The name of each defect, and where it is."""
        yield from self._timing()
        yield from self._runs()
        yield from self._losses()
        for call in self.calls("shuffle"):
            text = self.text(call)
            sizes = map(int, re.findall(r"\.shuffle\((?:buffer_size=)?(\d+)[,)]", text))
            of_batches = re.search(r"\.batch\((?!.*unbatch).*\.shuffle\(", text)
            if of_batches or min(sizes, default=1000) < 1000:
                yield "shuffle", call
        for node in self.nodes:  # bytes divided by a Python number become float64
            if isinstance(node, ast.BinOp) and getattr(node.right, "value", 0) == 255:
                text = self.text(node) + self.place(node)[1]
                if re.search(IMAGES, text) and not re.search(CONVERTED, text):
                    yield "float64", node

    def _timing(self) -> Iterator[tuple[str, Any]]:
        """The clock, and what is timed by it."""
        firsts = self._first_trainings()
        once: dict[str, ast.Call] = {}  # of each model, the timed training that no loop repeats
        for clock, start, lines in self._regions():
            if clock in ("process_time", "time"):
                yield "clock", start
            for made, call in firsts:
                # A loop that repeats this without making the model again warms it up.
                if call.lineno in lines and not self.in_loop(start, after=made):
                    yield "first epoch", call
            fits = [fit for fit in self.calls("fit") if fit.lineno in lines]
            once |= {ast.unparse(fit.func): fit for fit in fits if not self.in_loop(fit)}
            evaluations = [fit for fit in fits if "validation_" in ast.unparse(fit)]
            evaluations += self.calls("evaluate", "predict") if fits else []
            for call in evaluations:
                if call.lineno in lines:
                    yield "timed evaluation", call
        if len(once) > 1:
            yield "one run", list(once.values())[-1]

    def _regions(self) -> Iterator[tuple[str, Any, range]]:
        """Each `start = clock()` … `clock() - start`: the clock, and the lines between the two."""
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                start, stop = self.value(node.right), self.value(node.left)
                clock = re.fullmatch(CLOCK, ast.unparse(start))
                if clock and re.fullmatch(CLOCK, ast.unparse(stop)):
                    yield clock[1], start, range(start.lineno + 1, stop.lineno + 1)

    def _first_trainings(self) -> list[tuple[int, ast.Call]]:
        """With the line where a model was made or compiled, or a tf.function was made."""
        made: dict[str, int] = {}
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                if "Sequential(" in ast.unparse(self.functions.get(_name(node.value), node)):
                    made |= {ast.unparse(target): node.lineno for target in node.targets}
            elif isinstance(node, ast.FunctionDef):
                if "tf.function" in " ".join(map(ast.unparse, node.decorator_list)):
                    made[node.name] = node.lineno
            elif isinstance(node, ast.Call):
                name, _, method = ast.unparse(node.func).rpartition(".")
                name = name if method in ("compile", "fit") else ast.unparse(node.func)
                if method == "compile":
                    made[name] = node.lineno
                elif name in made:
                    found.append((made.pop(name), node))
        return found

    def _runs(self) -> Iterator[tuple[str, Any]]:
        """Batch and shuffling of the models that are compared."""
        source = "\n".join(self.lines)
        many = "num_replicas_in_sync" in source
        withs = [n for n in self.nodes if isinstance(n, ast.With)]
        scopes = [n for n in withs if ".scope()" in ast.unparse(n.items[0])]
        runs: dict[str, tuple[str | None, bool | None, ast.Call]] = {}  # of each model the last fit
        for fit in self.calls("fit"):
            text, arrays = self.text(fit), len(fit.args) > 1
            sizes = re.findall(r"\bbatch(?:\(|_size=)([^,()]+)", text) or ["32"] * arrays
            batch = sizes[-1] if sizes else None
            shuffles = arrays or (".shuffle(" in text if sizes else None)
            model = ast.unparse(fit.func).removesuffix(".fit")
            made = self.assigned.get(model, [fit])[-1]
            scoped = any(_inside(made, scope) for scope in scopes)
            where = next((call for call in self.calls("batch") if self.text(call) in text), fit)
            if scoped and many and batch and "num_replicas" not in batch:
                yield "batch", where
            runs[model] = (batch, shuffles, where)
        for (one, mixed, _), (two, also_mixed, where) in pairwise(runs.values()):
            if one and two and one != two and "weak" not in source.lower():
                yield "different batch", where
            if None not in (mixed, also_mixed) and mixed != also_mixed:
                yield "pipeline", where

    def _losses(self) -> Iterator[tuple[str, Any]]:
        """The loss of `compile` against the last layer above it, and the loss of a custom step."""
        models = [] if self.calls("add", "Model") else self.calls("Sequential")
        for call in self.calls("compile"):
            above = [self.text(model) for model in models if model.lineno < call.lineno]
            _, dense, last = above[-1].rpartition("Dense(") if above else ("", "", "")
            activation = re.search(r"softmax|sigmoid|relu", last)
            given = next((word.value for word in call.keywords if word.arg == "loss"), call)
            loss = self.text(given)
            logits = "from_logits=" in loss and "from_logits=False" not in loss
            if dense and mismatch(activation[0] if activation else "linear", loss, logits):
                yield "loss", given
        if self.calls("ParameterServerStrategy"):
            return  # its workers' gradients are applied one by one, not summed
        for run in self.calls("run"):
            step = self.functions.get(getattr(run.args[0], "id", "")) if run.args else None
            if step and "GradientTape" in ast.unparse(step):
                names = {_name(n) for n in ast.walk(step) if isinstance(n, ast.Call)}
                parts = [step, *(self.functions[name] for name in names & {*self.functions})]
                text = " ".join([self.text(part) + ast.unparse(part) for part in parts])
                if not re.search(SCALED, text):
                    yield "unscaled loss", step


def _name(call: ast.Call) -> str:
    """The last part of a dotted name: `Dense` of `keras.layers.Dense(10)`."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _inside(node: Any, outer: Any) -> bool:
    return bool(outer.lineno <= node.lineno <= outer.end_lineno)
