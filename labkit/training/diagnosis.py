"""Finds the classic mistakes of a training benchmark in a student's program or model.

>>> code = '''
... start = time.process_time()
... model.fit(x, y)
... print(time.process_time() - start)
... '''
>>> diagnose(code).names
('clock',)

The text of a program is read with `ast` and never run: a rule takes one expression, puts what names
were assigned in their place, and looks at its text. A model is inspected as an object.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from labkit.kinds import LabError

CLOCK = r"(?:\w+\.)*(process_time|time|perf_counter|monotonic)\(\)"
LOSS = r"(?i)\b((sparse_?)?categorical|binary)_?crossentropy\b"
SCALED = "(?i)compute_average_loss|scale_loss|global|num_replicas"
IMAGES, CONVERTED = r"\bx_|load_data|datasets\.", "astype|cast|float32"

RESULT, TIME = "wrong result", "wrong time"
# The worst first: how bad it is, what it does, and how to fix it.
DEFECTS = {
    "loss": (
        RESULT,
        "The last layer gives logits and the loss expects probabilities, or the reverse: the loss "
        "means nothing.",
        "Use a last layer without activation and a loss object with from_logits=True.",
    ),
    "unscaled loss": (
        RESULT,
        "Gradients are summed over the replicas, so the mean over a replica's own batch makes "
        "every gradient N times too large.",
        "Divide by the global batch: tf.nn.compute_average_loss(losses, global_batch_size=...).",
    ),
    "shuffle": (
        RESULT,
        "One run shuffles and the other does not (fit shuffles arrays by itself); or a small "
        "buffer mixes neighbours only; or a shuffle after .batch mixes whole batches.",
        "Write .shuffle(number of images).batch(...), in all runs.",
    ),
    "clock": (
        TIME,
        "process_time adds the CPU seconds of all threads: waiting for a GPU counts nothing, and "
        "two busy threads count twice. time.time can be set while it runs.",
        "Use time.perf_counter(), or labkit.measure and labkit.compare.",
    ),
    "first epoch": (
        TIME,
        "The first training of this model is timed, with building, tracing and start-up.",
        "Train a few steps before the clock starts, or use labkit.compare: it warms up first.",
    ),
    "timed evaluation": (
        TIME,
        "The evaluation is timed as if it were training.",
        "Stop the clock first, and evaluate afterwards, without validation data in fit.",
    ),
    "batch": (
        TIME,
        "The runs use different batches, so they make different numbers of steps.",
        "Give all runs the same global batch: that of a replica times the number of replicas.",
    ),
    "float64": (
        TIME,
        "The images are float64, 8 bytes a number, and are converted to float32 for the model.",
        'Write x.astype("float32") / 255, or keep bytes and scale inside the model.',
    ),
}


@dataclass(frozen=True)
class Finding:
    """One defect: the places where it was found, and what is written at the first of them."""

    defect: str
    severity: str
    does: str
    fix: str
    where: str
    wrote: str

    def __str__(self) -> str:
        found = f"{self.defect} ({self.severity}), {self.where}: {self.wrote}"
        return f"{found}\n  {self.does}\n  {self.fix}"


@dataclass(frozen=True)
class Diagnosis:
    """The findings, the worst first; finding none proves nothing."""

    findings: tuple[Finding, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the defects."""
        return tuple(finding.defect for finding in self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def _footer(self) -> str:
        if self.findings:
            return f"Found {len(self.findings)} of the {len(DEFECTS)} defects that labkit knows."
        return f"No defect found. That is no proof: labkit knows {len(DEFECTS)} defects."

    def __repr__(self) -> str:
        return "\n".join([*map(str, self.findings), self._footer()])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        head = ("defect", "where", "you wrote", "what it does, and how to fix it")
        rows = [
            (f"{f.defect} ({f.severity})", f.where, f.wrote, f"{f.does} → {f.fix}")
            for f in self.findings
        ]
        html = table(head, rows, footer=self._footer(), prose=True)
        return {"text/plain": repr(self), "text/html": html if rows else f"<p>{self._footer()}</p>"}


def diagnose(code: Any = "", *, model: Any = None) -> Diagnosis:
    """Look for the classic mistakes in a program, or in a model that exists.

    >>> diagnose(my_benchmark)                               # doctest: +SKIP
    >>> diagnose(In[3:6], model=model)                       # doctest: +SKIP

    `code` is Python text, a function, or a list of cells; `model` is a compiled Keras model.
    """
    if not code and model is None:
        raise LabError("Nothing to diagnose: give code or model=, such as diagnose(In[3]).")
    program = Program(_text(code))
    # The defect, where it is, and what is written there.
    found = [(name, *program.place(node)) for name, node in program.defects()]
    if model is not None:
        found += [("loss", "the model", wrote) for wrote in _wrong_loss(model)]
    findings = []
    for name, texts in DEFECTS.items():
        if here := [(where, wrote) for defect, where, wrote in found if defect == name]:
            places = ", ".join(dict.fromkeys(where for where, _ in here))
            findings.append(Finding(name, *texts, places, here[0][1]))
    return Diagnosis(tuple(findings))


def _text(code: Any) -> str:
    if isinstance(code, list):
        return "\n".join(map(str, code))
    try:
        return code if isinstance(code, str) else textwrap.dedent(inspect.getsource(code))
    except (TypeError, OSError):
        raise LabError(
            f"code must be Python text, a function of yours or a list of cells, got {code!r:.80}."
        ) from None


def _wrong_loss(model: Any) -> Iterator[str]:
    """Where the last layer and the loss of a compiled model do not match."""
    loss = getattr(model, "loss", None)
    if not getattr(model, "layers", ()) or not loss:
        raise LabError(
            f"model must be a compiled Keras model with layers and a loss, got {model!r:.80}."
        )
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    logits = bool(loss.get_config().get("from_logits")) if hasattr(loss, "get_config") else False
    layer = model.layers[-1]
    activation = getattr(getattr(layer, "activation", None), "__name__", type(layer).__name__)
    if mismatch(activation, name, logits):
        yield f"last layer {layer.name!r} with {activation}, loss {name}, from_logits={logits}"


class Program:
    """The nodes of a program in the order of its lines, and what they assign."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        try:
            tree = ast.parse(text)
        except SyntaxError as fault:
            message = f"Python cannot read line {fault.lineno}: {fault.msg}. Fix that first."
            raise LabError(message) from None
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
        return f"line {node.lineno}", self.lines[node.lineno - 1].strip()

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
        for clock, start, lines in self._regions():
            if clock in ("process_time", "time"):
                yield "clock", start
            for made, call in firsts:
                # A loop that repeats this without making the model again warms it up.
                if call.lineno in lines and not self.in_loop(start, after=made):
                    yield "first epoch", call
            fits = [fit for fit in self.calls("fit") if fit.lineno in lines]
            evaluations = [fit for fit in fits if "validation_" in ast.unparse(fit)]
            evaluations += self.calls("evaluate", "predict") if fits else []
            for call in evaluations:
                if call.lineno in lines:
                    yield "timed evaluation", call

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
        runs: dict[str, tuple[str | None, bool | None, ast.Call]] = {}  # of each model the last fit
        for fit in self.calls("fit"):
            text, arrays = self.text(fit), len(fit.args) > 1
            sizes = re.findall(r"\bbatch(?:\(|_size=)([^,()]+)", text) or ["32"] * arrays
            shuffles = arrays or (".shuffle(" in text if sizes else None)
            where = next((call for call in self.calls("batch") if self.text(call) in text), fit)
            runs[ast.unparse(fit.func)] = (sizes[-1] if sizes else None, shuffles, where)
        weak = "weak" in "\n".join(self.lines).lower()  # scaling: the batches differ on purpose
        for (one, mixed, _), (two, also_mixed, where) in pairwise(runs.values()):
            if one and two and one != two and not weak:
                yield "batch", where
            if None not in (mixed, also_mixed) and mixed != also_mixed:
                yield "shuffle", where

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


def mismatch(activation: str, loss: str, logits: bool) -> bool:
    """Whether a loss expects logits and the last layer gives probabilities, or the reverse."""
    wrong = ("softmax", "sigmoid") if logits else ("linear",)
    return bool(re.search(LOSS, loss)) and activation.lower() in wrong
