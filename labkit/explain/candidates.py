"""What to leave out or change, chosen from what the watched run shows.

A removal is a bound: it says what the part costs. A fix is the change itself, where it can be made
from outside. What is asked at each call is switched within one run (`block` steps each way); what
is fixed when an object is made needs runs of its own.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import statistics
from bisect import bisect
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.explain.causes import CAUSES
from labkit.explain.seen import Seen
from labkit.explain.statements import Statement, asked_how, calls, eager_step, gather

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
TEXT = "loadtxt genfromtxt read_csv csv json yaml xml strptime literal_eval".split()  # noqa: SIM905
LOGGING = re.compile(
    "log|logs|logg.*|print|writer?|summary|metrics?|hist.*|plot|record|report|track|watch"
)
EVALUATION = re.compile("eval.*|valid.*|test|predict|score")
SAVING = re.compile("saver?|checkpoints?|ckpt|snapshot|dump|export")


@dataclass
class Candidate:
    """One thing to leave out or to change."""

    key: str  # in CAUSES
    names: list[str]  # as the agent knows it
    evidence: str
    line: str = ""
    what: str = ""
    fix: bool = False
    block: int = 0  # steps in each way, if it is switched within a run
    aligned: bool = False  # they are whole epochs
    group: str = ""  # a fix explains the removal of its group
    limit: float = 1.12  # a smaller gain is no finding
    wall: bool = False  # own threads wait for cores: that is no delay by others
    scale: float = 1.0  # examples in a step, against the original
    values: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    statement: Statement | None = None
    compiled: list[Statement] = field(default_factory=list)
    kept: float = 0.2  # of what was left out: a fifth as often, or five times cheaper
    share: float = 0.0  # of the loop, by samples: what is said where it cannot be left out
    logs: list[float] = field(default_factory=list)  # log ratios, one for each pair
    failed: str = ""

    def words(self, text: str) -> str:
        """A sentence about a cause, with this one's own names and numbers in it."""
        return text.format_map({"what": self.what, **self.values})

    @property
    def says(self) -> str:
        """The cause, in words."""
        return self.words(CAUSES[self.key].says)


def candidates(seen: Seen) -> list[Candidate]:
    """All that is worth a measurement, the most promising first."""
    chooser = _Chooser(seen)
    (chooser.torch if seen.torch else chooser.tensorflow)()
    chooser.statements()
    return chooser.found


class _Chooser:
    def __init__(self, seen: Seen) -> None:
        self.seen, self.found = seen, list[Candidate]()
        self.all = CORES // max(1, seen.world) or 1  # cores of each rank

    def add(self, key: str, name: str, evidence: str, **options: Any) -> Candidate:
        one = Candidate(key, [name], evidence, **options)
        self.found.append(one)
        return one

    def block(self, every: float = 1.0) -> int:
        """Steps in each way: whole periods of what happens every so many steps, 0.25 s at least.

        Where steps differ much, as those of sentences do, so many that their mean varies by 12 %.
        """
        alike = min(math.ceil((self.seen.spread / 0.12) ** 2), (self.seen.steps - 5) // 4)
        steps = max(2, math.ceil(0.25 / self.seen.step), alike)
        if every > 1.5:
            steps = math.ceil(steps / every) * round(every)
        return steps if self.seen.steps >= 4 * steps + 5 else 0

    def epochs(self) -> int:
        """Steps in each way: two or more epochs, if they are short, alike and many."""
        one, starts = self.seen.epoch, sorted(set(self.seen.lead["epochs"]))
        if one < 3 or starts[:3] != [0, one, 2 * one]:
            return 0
        steps = one * max(2, math.ceil(1 / one / self.seen.step))
        return steps if steps * self.seen.step < 6 and self.seen.steps >= one + 4 * steps else 0

    def period(self, events: int) -> float:
        return self.seen.steps / events if events else 1.0

    def percent(self, share: float) -> str:
        return f"{100 * share:.0f} % of the loop"

    # -- input

    def input_cause(self, *parts: str) -> tuple[str, str]:
        """What the input spends its time on, by the line that most samples fall into."""
        line, callee, share = self.seen.hot(*parts)
        if not line or share < 0.3:
            return "input", ""
        inner = callee.rsplit(".", 1)[-1] if callee else ""
        if any(word in callee for word in TEXT):
            return "text_format", f"{callee.split('.')[0]}'s {inner} at {line}"
        if not callee or callee.startswith("torch._tensor"):
            return "python_loop_input", f"line {line}"
        return "input", f"{callee.split('.')[0]}'s {inner} at {line}"

    def torch_input(self) -> None:
        seen, loader = self.seen, self.seen.note(self.seen.note("loader") or "loader0")
        waiting = seen.share("input") + seen.share("workers")
        workers = (loader or {}).get("workers", 0)
        if not loader or waiting < (0.06 if workers else 0.1):  # workers also take cores
            return
        line = seen.site(seen.note("loader") or "loader0")
        key, what = self.input_cause("input", "workers")
        evidence = f"{self.percent(waiting)} waits for the loader"
        evidence += f", mostly in {what}" if what else ""
        hot = seen.hot("input")[0]
        self.add(
            key, "input", evidence, line=hot if what else line, what=what, group="input",
            limit=1.15, block=0 if workers else self.block(), share=waiting,
        )  # fmt: skip
        epochs = len(set(seen.lead["epochs"]))
        if workers and not loader["persistent"] and epochs > 2:
            started = f"{self.percent(seen.share('workers'))} starts workers, {epochs} epochs"
            self.add(
                "workers_start", "persistent", started, line=line, fix=True, group="input",
                share=seen.share("workers"),
            )  # fmt: skip
        for wanted, name in ((self.all, "few_workers"), (0, "many_workers")):
            if (wanted > workers) if wanted else workers:
                evidence = f"num_workers={workers}, {self.percent(waiting)} waits for the loader"
                self.add(
                    name, "workers", evidence, line=line, fix=True, group="input",
                    values={"workers": wanted},
                )  # fmt: skip

    # -- PyTorch

    def torch(self) -> None:
        seen = self.seen
        self.torch_input()
        threads = seen.note("threads") or 1
        what = f"{threads} threads in each of {seen.world} processes on {CORES} cores"
        if threads != self.all:
            self.add(
                "few_threads" if threads < self.all else "many_threads", "threads", what,
                what=what, line=seen.site("set_threads"), fix=True, wall=True,
                values={"threads": self.all},
                env={"OMP_NUM_THREADS": str(self.all), "MKL_NUM_THREADS": str(self.all)},
            )  # fmt: skip
        if seen.note("float64"):
            line = seen.hot("forward", "backward")[0] or seen.site("backward")
            self.add("float64", "float32", "the parameters are float64", line=line, fix=True)
        if idle := seen.note("idle"):
            what = f"{idle:,} of {seen.note('all weights'):,} weights"
            nothing = seen.note("requires_grad of modules")
            said = "; .requires_grad was set on a module, where it does nothing" if nothing else ""
            self.add(
                "frozen", "frozen", what + said, what=what, fix=True, limit=1.06,
                line=(nothing and self.written("requires_grad =")) or seen.site("trained"),
                block=0 if seen.note("ddp") else self.block(),
                failed="DDP expects all gradients" if seen.note("ddp") else "",
            )  # fmt: skip
        size = seen.note("embedding") or 0
        if size > 0.3 * (seen.note("parameters") or 1) and seen.note("takes rows"):
            what = f"{size:,} of {seen.note('parameters'):,} weights"
            if seen.world < 2 and not seen.note("sparse embedding"):
                line = seen.site("embedding")
                self.add("rows", "rows", what, what=what, line=line, fix=True)
        if seen.note("compile") and (seen.note("graphs") or 0) > 3:
            evidence = f"{seen.note('graphs')} graphs were compiled"
            self.add("recompiling", "dynamic", evidence, line=seen.site("compile"), fix=True)
        if seen.world > 1:
            self.communication()

    def communication(self) -> None:
        seen, ddp = self.seen, self.seen.note("ddp")
        micro = round(statistics.median(seen.note("backwards") or [1]))
        calls = {k[5:]: seen.count(k) for k in seen.lead["count"] if k.startswith("dist.")}
        told = ", ".join(f"{name} {times} times" for name, times in calls.items()) or "by DDP"
        line = seen.site("dist.all_reduce", "dist.broadcast", "ddp")
        if not seen.note("comm hook"):
            self.add(
                "communication", "comm", f"{told} in {seen.steps} steps", line=line,
                group="comm", limit=1.25, block=self.block(),
            )  # fmt: skip
        reduces = calls.get("all_reduce", 0)
        synced = ddp is not None and seen.count("synced forward") > 1.5 * seen.steps
        if micro > 1 and (synced or reduces > 1.5 * seen.steps):
            key = "no_sync" if self.written("no_sync(") else "micro_steps"
            self.add(
                key, "last", f"{micro} backward passes for each update, and each reduces",
                line=seen.site("backward"), group="comm", fix=True, block=self.block(),
                values={"micro": micro}, limit=1.08,
            )  # fmt: skip
        each = reduces / max(1, seen.steps) / micro
        if each >= 4:
            size = seen.count("reduced bytes") / max(1, min(reduces, 5000))
            what = f"{each:.0f} all-reduces of {size / 1e3:.1f} kB on average"
            self.add(
                "many_collectives", "fuse", f"{what} in each step", line=line, what=what,
                group="comm", fix=True, block=self.block(),
                values={"calls": round(each * micro), "bytes": size * each * micro},
            )  # fmt: skip
        options = ddp or {}
        arguments = (
            ("find_unused_parameters", "find_unused", "used", "find_unused_parameters=True"),
            (
                "bucket_cap_mb",
                "buckets",
                "buckets",
                f"bucket_cap_mb={options.get('bucket_cap_mb')}",
            ),
        )
        for option, key, name, what in arguments:
            if options.get(option):
                self.add(
                    key, name, what, what=what, line=seen.site("ddp"), group="comm", fix=True,
                    limit=1.04,
                )  # fmt: skip
        if seen.note("sparse") or seen.note("sparse embedding"):
            self.add(
                "sparse", "dense", "the gradient of an embedding is sparse", group="comm",
                line=seen.site("sparse embedding", "backward"), fix=True,
            )  # fmt: skip
        shape, longest = seen.shapes()
        if shape and ddp is not None:
            self.add(
                "uneven", "even", f"at each step the longest batch is {longest:.2f} times the mean",
                line=seen.site(seen.note("loader") or "") or seen.site("backward"), group="comm",
                fix=True, block=self.block(), values={"shape": shape},
            )  # fmt: skip

        elif (uneven := seen.imbalance()) > 1.2:
            self.add(
                "uneven", "even", f"at each step the busiest rank computes {uneven:.2f} times as "
                "long as the mean", line=seen.site("backward"), share=1 - 1 / uneven,
                failed="the lengths of these batches cannot be changed from outside",
            )  # fmt: skip

    def written(self, text: str) -> str:
        """Where the user's files say so."""
        for file in sorted({file for file, _ in self.seen.essential}):
            for number, line in enumerate(Path(file).read_text("utf-8", "replace").splitlines(), 1):
                if text in line:
                    return self.seen.short(f"{file}:{number}")
        return ""

    # -- TensorFlow

    def tensorflow(self) -> None:
        seen = self.seen
        python = [k for k in ("py_function", "numpy_function", "from_generator") if seen.note(k)]
        fit = seen.note("fit")
        hidden = fit not in (None, "arrays")  # fit reads inside of the compiled step
        if hidden or python or seen.share("input") > 0.1:
            key, what = ("python_input", python[0]) if python else ("input", "")
            waiting = (
                "fit reads within its compiled step"
                if hidden
                else (f"{self.percent(seen.share('input'))} waits for the dataset")
            )
            line = seen.site(*python) or seen.site("serial map") or seen.hot("input")[0]
            line = line or seen.site("batch", "fit")
            thread, share = seen.threads_line()
            if python and share > 0.2:
                waiting += f"; {100 * share:.0f} % of the samples find Python at {thread}"
                if line == seen.site("fit"):  # a PyDataset: no other line of the user's makes it
                    line = what = thread
            self.add(
                key, "input", waiting, line=line, what=what, group="input", limit=1.15,
                block=self.epochs(), aligned=True, share=seen.share("input"),
            )  # fmt: skip
            if seen.note("serial map") and not python:
                self.add(
                    "serial_map", "parallel", "map without num_parallel_calls",
                    line=seen.site("serial map"), group="input", fix=True,
                )  # fmt: skip
        traces = seen.count("traces of one")
        if traces > 3 and seen.share("trace") > 0.05:
            evidence = f"traced {traces} times more, {self.percent(seen.share('trace'))}"
            self.add(
                "retracing", "retrace", evidence, line=seen.site("trace"), fix=True,
                share=seen.share("trace"),
            )  # fmt: skip
        self.eager()
        threads = seen.note("intra threads")
        if threads and threads != CORES:
            self.add(
                "few_threads" if threads < CORES else "many_threads", "threads",
                f"{threads} threads on {CORES} cores", what=f"{threads} threads on {CORES} cores",
                line=seen.site("intra threads"), fix=True, wall=True, values={"threads": CORES},
                env={"TF_NUM_INTRAOP_THREADS": str(CORES), "OMP_NUM_THREADS": str(CORES)},
            )  # fmt: skip
        if seen.note("float64"):
            self.add("float64", "float32", "floatx is float64", line=seen.site("float64"), fix=True)
        times = seen.count("small predict")
        if times > seen.steps / 4 and seen.share("whole eval") > 0.06:
            self.add(
                "predict", "predict", f"{self.percent(seen.share('whole eval'))}, {times} calls",
                line=seen.site("small predict"), fix=True, block=self.block(),
            )  # fmt: skip
        self.callbacks()

    def eager(self) -> None:
        seen, gradients = self.seen, self.seen.note("eager") or []
        if seen.note("run eagerly"):
            line = seen.site("run eagerly")
            self.add("eager", "eager", "run_eagerly=True", line=line, fix=True)
        elif gradients and seen.kind == "tape":
            places = [place.rsplit(":", 1) for place in gradients]
            found = [eager_step(file, int(row), seen.essential) for file, row in places]
            steps = {(one.file, one.first): one for one in found if one}
            self.add(
                "eager", "compile", "gradients are taken outside of a tf.function",
                line=seen.site("eager"), fix=True, block=self.block() or 5,
                compiled=[*steps.values()], failed="" if steps else "it is in no function or loop",
            )  # fmt: skip

    def callbacks(self) -> None:
        seen = self.seen
        if seen.note("callbacks") is None:
            return
        for name in seen.note("callbacks"):
            part = f"callback {name}"
            share = seen.share(f"whole {part}")
            if share < 0.05:
                continue
            line = seen.hot(part)[0]
            line = line if line != seen.site("fit") else seen.site(part)  # where it is made
            file, row = (line or seen.site("fit")).rsplit(":", 1)
            words = " ".join(re.findall("[A-Z]?[a-z]+", name))
            one = Statement(file, int(row), int(row), words)
            for report in seen.ranks:
                for _, callee, inner, inside, times in report["chains"]:
                    if inside == part:
                        one.parts[inner] += times
                        one.callees[callee] += times
            key = self.name(one)[0]
            self.add(
                key, part, f"{name}: {self.percent(share)}", line=line, what=name,
                block=self.block(self.gaps(part)), limit=1.2 if key == "evaluation" else 1.12,
            )  # fmt: skip
        if seen.share("whole eval") > 0.06 and seen.note("fit"):
            self.add(
                "evaluation", "eval", self.percent(seen.share("whole eval")),
                line=seen.site("eval", "fit"), block=self.block(self.gaps("eval")), limit=1.2,
            )  # fmt: skip

    # -- the user's own lines

    def statements(self) -> None:
        """Statements and functions of the user's that a step can do without."""
        seen = self.seen
        skip = (
            ("input", "workers", "graph")
            if not seen.note("callbacks")
            else ("input", "workers", "graph", *(f"callback {n}" for n in seen.note("callbacks")))
        )
        reports = [*seen.ranks]
        for one in gather(reports, seen.essential, skip)[:8]:
            share = one.samples / seen.samples
            if share < 0.05 or len([c for c in self.found if c.statement]) >= 5:
                continue
            steps = [step for c in self.found for step in c.compiled if step.file == one.file]
            if any(step.first <= one.first <= step.last for step in steps):
                continue
            key, what = self.name(one)
            thread = one.parts.most_common(1)[0][0] == "thread"
            told = {c.key for c in self.found}
            if (thread and "python_input" in told) or (key == "evaluation" and "predict" in told):
                continue  # the input pipeline's own threads, or a call that has a fix
            line = (
                f"{one.file}:{one.first}" if key == "evaluation" else "{}:{}".format(*one.hottest)
            )
            if asked_how(one) is None:
                continue
            self.found.append(
                Candidate(
                    key, [f"statement {one.first}"], self.told(one, share), seen.short(line), what,
                    block=self.block(self.every(one, key)), statement=one,
                    limit=1.2 if key in ("evaluation", "python", "input") else 1.12,
                    group="thread" if thread else "",
                    kept=1 / seen.world if key == "rank_0_reads" else 0.2,  # its own part
                    share=0.0 if thread else share,
                )
            )  # fmt: skip

        self.parts()

    def parts(self) -> None:
        """What no line of the user's stands for, or keeps the GIL so that no sample sees it."""
        told = {one.key for one in self.found}
        for part, key in (("gc", "collection"), ("save", "checkpoints"), ("log", "logging")):
            share = self.seen.share(part)
            if share > 0.05 and key not in told:
                events = self.seen.count("gc.collect" if part == "gc" else part)
                self.add(
                    key, part, f"{self.percent(share)}, {events} times", line=self.seen.site(part),
                    block=self.block(self.period(events)),
                )  # fmt: skip

    def every(self, one: Statement, key: str) -> float:
        """Steps from one time that it takes long to the next."""
        parts = {"checkpoints": "save", "evaluation": "eval", "collection": "gc.collect"}
        events = self.seen.count(parts.get(key, ""))
        if key == "evaluation":
            return self.gaps("eval")
        return self.period(events) if 0 < events < self.seen.steps / 1.5 else 1.0

    def gaps(self, part: str) -> float:
        """The usual distance, in steps, of the times that this part takes long."""
        marks = self.seen.lead["marks"][self.seen.kind]
        spent: Counter[int] = Counter()
        for name, start, seconds in self.seen.lead["spans"]:
            if name == part:
                spent[bisect(marks, start)] += seconds
        largest = sorted(spent.values())[-3:]  # the first may be traced
        long = 0.25 * min(largest, default=0.0)
        at = sorted(step for step, seconds in spent.items() if seconds > long)
        apart = [b - a for a, b in itertools.pairwise(at)]
        return float(statistics.median(apart)) if apart else float(self.seen.steps)

    def told(self, one: Statement, share: float) -> str:
        text = one.text if not one.name else f"{one.name}()"
        text = text if len(text) < 60 else text[:57] + "…"
        callee = one.callees.most_common(1)[0][0]
        inside = f", mostly in {callee}" if callee else ""
        return f"{self.percent(share)}: {text}{inside}"

    def name(self, one: Statement) -> tuple[str, str]:
        """What a statement does, by the parts inside it, then by what it calls and is called."""
        total = sum(one.parts.values())
        line = f"{self.seen.short(one.file)}:{one.first}"
        what = f"{one.name}()" if one.name else f"line {line.rsplit(':', 1)[-1]}"
        share = {part: n / total for part, n in one.parts.items()}
        callees = " ".join(one.callees).lower()
        words = {*re.findall("[a-z]+", " ".join([one.name, *calls(one), *one.callees]).lower())}
        comm, rest = share.get("comm", 0.0), share.get("rest", 0.0)
        if share.get("thread", 0) > 0.5:
            return ("background_saving" if any(map(SAVING.fullmatch, words)) else "python"), what
        if self.seen.world > 1 and comm > 0.2 and rest > 0.1 and self.alone(one):
            return "rank_0_reads", what
        if share.get("save", 0) > 0.3:
            return "checkpoints", what
        if share.get("gc", 0) > 0.4:
            return "collection", what
        if share.get("eval", 0) > 0.4 and not share.get("log", 0) > 0.5:
            return "evaluation", what
        if share.get("log", 0) > 0.3:
            return "logging", what
        if comm > 0.5:
            return "communication", what
        for names, key in (
            (SAVING, "checkpoints"),
            (LOGGING, "logging"),
            (EVALUATION, "evaluation"),
        ):
            if any(map(names.fullmatch, words)):
                return key, what
        if share.get("sync", 0) > 0.3:
            return "synchronisation", what
        if any(word in callees for word in TEXT):
            return "text_format", what
        return "python", what

    def alone(self, one: Statement) -> bool:
        """Does one rank work in it while the others wait in a collective?"""
        waits = []
        for report in self.seen.ranks:
            mine = {"comm": 0, "rest": 0}
            for lines, _, part, _, times in report["chains"]:
                if any(entry.startswith(one.file) for entry in lines) and part in mine:
                    mine[part] += times
            waits.append(mine["comm"] / max(1, mine["comm"] + mine["rest"]))
        return max(waits) - min(waits) > 0.35
