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

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from labkit.kinds import LabError
from labkit.training.torch_defects import TORCH, torch_defects

CLOCK = r"(?:\w+\.)*(process_time|time|perf_counter|monotonic)(?:_ns)?\(\)"
TIMED, EVALUATION = f"{CLOCK} - {CLOCK}", r"\b(evaluate|predict)\(|\bvalidation_\w+="
LOSS = r"(?i)\b((sparse_?)?categorical|binary)_?crossentropy\b"
SCALED = r"(?i)compute_average_loss|global\w*(batch|size)|\bglobal\b(?! \w)|num_replicas"
TRAINS, TRAINED = ("fit", "train_on_batch"), r"\.(fit|train_on_batch)\("
IMAGES = r"\bx_|load_data|datasets\."
CONVERTED = r"astype(?!\(.{0,11}float(64)?\b)|cast|float32"  # Python's float has 64 bits

# Of each defect what it does, and how to fix it.
WRONG_RESULT = {
    "loss": (
        "The last layer gives logits and the loss expects probabilities, or the reverse: the loss "
        "means nothing.",
        "Use a last layer without activation and a loss object with from_logits=True.",
    ),
    "unscaled loss": (
        "Gradients are summed over the replicas, so the mean over a replica's own batch makes "
        "every gradient N times too large.",
        "Divide by the global batch: tf.nn.compute_average_loss(losses, global_batch_size=...).",
    ),
    "shuffle": (
        "One run shuffles and the other does not (fit shuffles arrays by itself); or a small "
        "buffer mixes neighbours only; or a shuffle after .batch mixes whole batches.",
        "Write .shuffle(number of images).batch(...), in all runs.",
    ),
}
WRONG_TIME = {
    "clock": (
        "process_time adds the CPU seconds of all threads: a wait that sleeps counts nothing, and "
        "two busy threads count twice. time.time can be set while it runs.",
        "Use time.perf_counter(), or labkit.measure and labkit.compare.",
    ),
    "first epoch": (
        "The first training of this model is timed, with building, tracing and start-up.",
        "Train a few steps before the clock starts, or use labkit.compare: it warms up first.",
    ),
    "timed evaluation": (
        "The evaluation is timed as if it were training.",
        "Stop the clock first, and evaluate afterwards, without validation data in fit.",
    ),
    "batch": (
        "The runs use different batches, so they make different numbers of steps.",
        "Give all runs the same global batch: that of a replica times the number of replicas.",
    ),
    "float64": (
        "The images are float64, 8 bytes a number, and are converted to float32 for the model.",
        'Write x.astype("float32") / 255, or keep bytes and scale inside the model.',
    ),
}
KERAS = WRONG_RESULT | WRONG_TIME  # the worst first
TEXTS = {name: ("wrong result" if name in WRONG_RESULT else "wrong time", *texts)
         for name, texts in KERAS.items()} | TORCH  # fmt: skip
DEFECTS = tuple(TEXTS)


@dataclass(frozen=True)
class Finding:
    """A defect, the places where it was found, and the text of the first of them."""

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
    foreign: tuple[str, ...] = ()
    """Other frameworks that the program uses."""
    known: int = len(KERAS)
    """How many defects were looked for."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the defects."""
        return tuple(finding.defect for finding in self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def _footer(self) -> str:
        more = ""
        if self.foreign:
            others = " or ".join(self.foreign)
            more = f" All are of Keras, tf.distribute and PyTorch, none of {others}."
        if self.findings:
            count = f"{len(self.findings)} of the {self.known}"
            return f"Found {count} defects that labkit knows.{more}"
        return f"No defect found. That is no proof: labkit knows {self.known} defects.{more}"

    def __repr__(self) -> str:
        return "\n".join([*map(str, self.findings), self._footer()])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        head = ("defect", "where", "you wrote", "what it does, and how to fix it")
        rows = [
            (f"{f.defect} ({f.severity})", f.where, f.wrote, f"{f.does} → {f.fix}") for f in self
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
    if isinstance(code, (str, Path)) and re.fullmatch(r"\S+\.(py|ipynb)", str(code)):
        raise LabError(f"{code} is the name of a file: give diagnose(open({str(code)!r}).read()).")
    program = Program(_text(code))
    # A blank, a text and a `pass` are no program yet.
    lines = [n for n in program.nodes if isinstance(n, ast.stmt) and not hasattr(n, "body")]
    blank = (ast.Constant, ast.Pass)
    if model is None and all(isinstance(getattr(n, "value", n), blank) for n in lines):
        raise LabError("Nothing to diagnose: there is only a `...`. Write your program first.")
    # The defect, where it is, and what is written there.
    found = [(name, f"line {n.lineno}", program.line(n)) for name, n in program.defects()]
    if model is not None:
        found += [("loss", "the model", wrote) for wrote in _wrong_loss(model)]
    findings = []
    for name, (severity, does, fix) in TEXTS.items():
        if here := [(where, wrote) for defect, where, wrote in found if defect == name]:
            places = ", ".join(dict.fromkeys(where for where, _ in here))
            findings.append(Finding(name, severity, does, fix, places, here[0][1]))
    used = re.findall(r"(?m)^\s*(?:import|from) (horovod|jax)\b", program.source)
    known = len(DEFECTS if program.is_torch else KERAS)
    return Diagnosis(tuple(findings), tuple(dict.fromkeys(used)), known)


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
    """Yields a text for each mismatch of a compiled model's last layer and its loss."""
    loss = getattr(model, "loss", None)
    if not getattr(model, "layers", ()) or not loss:
        raise LabError(f"model must be a compiled Keras model with layers, got {model!r:.80}.")
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    logits = hasattr(loss, "get_config") and loss.get_config().get("from_logits", False)
    layer = model.layers[-1]
    activation = getattr(getattr(layer, "activation", None), "__name__", type(layer).__name__)
    if mismatch(activation, told := f"{name}, from_logits={logits}"):
        yield f"last layer {layer.name!r} with {activation}, loss {told}"


class Program:
    """A program as nodes in the order of its lines, with the values that it assigns."""

    def __init__(self, text: str) -> None:
        self.source = text
        try:
            tree = ast.parse(text)
        except SyntaxError as fault:
            raise LabError(f"Python cannot read line {fault.lineno}: {fault.msg}.") from None
        self.is_torch = bool(re.search(r"(?m)^\s*(?:import|from) torch\b", text))
        self.nodes: list[Any] = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
        self.nodes.sort(key=lambda node: (node.lineno, node.col_offset))
        self.functions = {n.name: n for n in self.nodes if isinstance(n, ast.FunctionDef)}
        self.assigned: dict[str, list[ast.expr]] = {}
        for assign in (node for node in self.nodes if isinstance(node, ast.Assign)):
            for name in ast.walk(ast.List(assign.targets)):
                if isinstance(name, ast.Name):
                    self.assigned.setdefault(name.id, []).append(assign.value)

    def calls(self, *names: str) -> list[ast.Call]:
        """Returns all calls of functions or methods with these names, in the order of lines."""
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        return [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in names]

    def line(self, node: ast.expr) -> str:
        """Returns the text of a node's line."""
        return self.source.splitlines()[node.lineno - 1].strip()

    def value(self, node: Any) -> Any:
        """Returns what was last assigned to a name above its line; other nodes as they are."""
        values = self.assigned.get(node.id, []) if isinstance(node, ast.Name) else []
        above = [value for value in values if (value.end_lineno or 0) < node.lineno]
        return self.value(above[-1]) if above else node

    def text(self, node: Any, depth: int = 5) -> str:
        """Returns the text of an expression, with the values that its names were assigned."""
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and depth]
        read = {n.id: n for n in names if isinstance(n.ctx, ast.Load)}
        texts = {name: self.text(self.value(n), depth - 1) for name, n in read.items()}
        # A name is no attribute, and no keyword of a call.
        return re.sub(r"(?<![.\w])\w+(?![\w=])", lambda n: texts.get(n[0], n[0]), ast.unparse(node))

    def defects(self) -> Iterator[tuple[str, Any]]:
        """Yields the name of each defect and the node at which it is."""
        if self.is_torch:
            yield from torch_defects(self)
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
                text = self.text(node) + self.line(node)
                if re.search(IMAGES, text) and not re.search(CONVERTED, text):
                    yield "float64", node

    def _timing(self) -> Iterator[tuple[str, Any]]:
        """Yields wrong clocks around trainings, and what they must not time."""
        loops = [node for node in self.nodes if isinstance(node, (ast.For, ast.While))]
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and (clock := re.fullmatch(TIMED, self.text(node))):
                start, stop = self.value(node.right), self.value(node.left)
                if clock[2] in ("process_time", "time"):
                    yield "clock", start
                calls = self.calls(*TRAINS, "evaluate", "predict", *self.functions)
                timed = [call for call in calls if start.lineno < call.lineno <= stop.lineno]
                trains = not set(timed).isdisjoint(self.calls(*TRAINS))
                for call in timed:
                    made = self._made(call)
                    # A loop that repeats this without making the model again warms it up.
                    warm = any(made < n.lineno < start.lineno <= n.end_lineno for n in loops)
                    if made and not warm:
                        yield "first epoch", call
                    if trains and re.search(EVALUATION, ast.unparse(call)):
                        yield "timed evaluation", call

    def _made(self, call: ast.Call) -> int:
        """Returns the line that made or compiled what is called; 0 if it was called in between."""
        name, _, method = re.escape(ast.unparse(call.func)).rpartition(r"\.")
        trains = method in TRAINS
        made = rf"{name}(\.compile| = [\w.]+)\(" if trains else rf"@tf\.function.*\ndef {method}\("
        used = rf"{name}{TRAINED}" if trains else rf"{method}\("
        for node in reversed([node for node in self.nodes if node.end_lineno < call.lineno]):
            if re.match(made, text := ast.unparse(node)):
                return int(node.lineno)
            if re.match(used, text) or (trains and self._helps(node, name)):
                return 0
        return 0

    def _helps(self, node: Any, model: str) -> bool:
        """Returns whether a loop or a called function trains the model."""
        if not isinstance(node, (ast.Call, ast.For)):
            return False
        text = ast.unparse(node)
        name = "" if isinstance(node, ast.For) else ast.unparse(node.func).rpartition(".")[2]
        body = ast.unparse(self.functions[name]) if name in self.functions else text * (not name)
        given = name != "print" and re.search(rf"[(=,] ?{model}[,)]", text.partition("\n")[0])
        trained = re.search(rf"{TRAINED}|GradientTape", body) or not body
        return bool((given and trained) or re.search(rf"\b{model}{TRAINED}", body))

    def _runs(self) -> Iterator[tuple[str, Any]]:
        """Yields where compared models differ in batch or shuffling."""
        runs: dict[str, tuple[str, bool, ast.Call]] = {}  # of each model the last fit
        for fit in self.calls("fit"):
            text, arrays = self.text(fit), len(fit.args) > 1
            where = next((call for call in self.calls("batch") if self.text(call) in text), fit)
            if sizes := re.findall(r"\bbatch(?:\(|_size=)([^,()]+)", text) or ["32"] * arrays:
                runs[ast.unparse(fit.func)] = (sizes[-1], arrays or ".shuffle(" in text, where)
        # A batch may differ on purpose: where weak scaling or, on the same devices, it is compared.
        scopes = [n for n in self.nodes if isinstance(n, ast.With) and "scope" in ast.unparse(n)]
        inside = {ast.unparse(n) for scope in scopes for n in ast.walk(scope) if hasattr(n, "ctx")}
        same = not scopes or inside.issuperset(name.rpartition(".")[0] for name in runs)
        for (one, mixed, _), (two, also_mixed, where) in pairwise(runs.values()):
            if one != two and not same and "weak" not in self.source.lower():
                yield "batch", where
            if mixed != also_mixed:
                yield "shuffle", where

    def _losses(self) -> Iterator[tuple[str, Any]]:
        """Yields losses of `compile` that do not match the last layer, and unscaled losses."""
        for call in self.calls("compile"):
            _, dense, last = self._layers(call.lineno).rpartition("Dense(")
            activation = re.search(r"(?i)softmax|sigmoid|relu", last)
            given = next((word.value for word in call.keywords if word.arg == "loss"), call)
            if dense and mismatch(activation[0] if activation else "linear", self.text(given)):
                yield "loss", given
        for name, step in self.functions.items():
            body = ast.unparse(step)
            run = " ".join(map(ast.unparse, self.calls("run")))
            if "GradientTape" in body and re.search(rf"\b{name}\b", run):
                # The step itself, and the functions that it calls. Behind an all-reduce of its own
                # a step divides gradients for another reason: then the loss alone is looked at.
                others = [f for f in self.functions.values() if f is not step]
                parts: list[ast.stmt] = [f for f in others if re.search(rf"\b{f.name}\(", body)]
                tapes = [node for node in ast.walk(step) if isinstance(node, ast.With)]
                parts += tapes if "all_reduce(" in body else [step]
                text = " ".join(self.text(part) + ast.unparse(part) for part in parts)
                # The gradients of a parameter server's workers are applied one by one, not summed.
                if not (re.search(SCALED, text) or self.calls("ParameterServerStrategy")):
                    yield "unscaled loss", step

    def _layers(self, line: int) -> str:
        """Returns the text of the last Sequential above a line; "" if layers are added to it."""
        calls = [c for c in self.calls("Sequential", "Model", "add") if c.lineno < line]
        sequential = calls and ast.unparse(calls[-1].func).endswith("Sequential")
        return self.text(calls[-1]) if sequential else ""


def mismatch(activation: str, loss: str) -> bool:
    """Returns whether the loss expects logits of a layer with probabilities, or the reverse."""
    wrong = ("softmax", "sigmoid") if re.search("from_logits=(?!False)", loss) else ("linear",)
    return bool(re.search(LOSS, loss)) and activation.lower() in wrong
