"""`labkit study`: plan the parts, give each its share of the time, and write one recording.

Ranks measure and append to the file (`measuring`); this process starts them, samples the devices
beside them and ends them. A share is of seconds, never of rounds: on a busy machine a study has
fewer rounds, and takes as long.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

from labkit import cluster, collectives
from labkit.arguments import one_of, whole
from labkit.environments import find
from labkit.hardware import survey
from labkit.hardware.machine import busy
from labkit.kinds import LabError, counted, seconds_text
from labkit.mpi.run import mpiexec
from labkit.plain import atomic_write
from labkit.study import with_tensorflow, with_torch
from labkit.study.measuring import SIZES
from labkit.study.study_file import Study, load
from labkit.telemetry.client import SamplerClient

SECONDS = {"minute": 60.0, "ten": 600.0, "hour": 3600.0}
FRAMEWORKS = {"tensorflow": with_tensorflow.study, "torch": with_torch.study}
# Shares of the time, for one device and for more.
STEPS = (("dense", 3.0), ("convolutional", 4.0), ("transformer", 8.0))  # with what they build
ALONE = (("gemm", "float32", 2.0), ("copy", "memory", 1.0), ("loss", "dense", 4.0))
PAGE = 4.0  # seconds for the page, at the end
OVER = 0.08  # of all seconds: then a group of ranks that has not ended is stopped


def main(chosen: argparse.Namespace) -> int:
    """The command. Ctrl-C and SIGTERM keep what is measured; `--resume` goes on."""
    began = time.time()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if chosen.resume:
        file, plan = chosen.resume, load(chosen.resume).plan
    else:
        file = chosen.out or Path(time.strftime("study-%Y%m%d-%H%M%S.jsonl"))
        plan = make_plan(
            chosen.devices, SECONDS.get(chosen.time) or _seconds(chosen.time), chosen.framework,
            chosen.link, chosen.nodes, chosen.gpus,
        )  # fmt: skip
    try:
        run(plan, file, began, resume=bool(chosen.resume))
    except KeyboardInterrupt:
        _say(f"\nStopped. What was measured is kept: labkit study --resume {file}")
        return 130
    finally:
        cluster.shutdown()
    found = load(file)
    page = found.save(file.with_suffix(".html"))
    _say(f"{found}\n{seconds_text(time.time() - began)}. Recording: {file}. Page: {page}.")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or not 5 <= float(text) <= 86_400:
        raise LabError(f"--for takes minute, ten, hour or seconds from 5 on, got {text!r}.")
    return float(text)


def make_plan(
    devices: str, seconds: float, framework: str = "tensorflow", link: str | None = None,
    nodes: int | None = None, gpus: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Returns the parts of a study with their weights, those that cannot be done with the reason.

    >>> plan = make_plan("1", 60)
    >>> [part["part"] for part in plan["parts"]]
    ['gemm', 'copy', 'loss', 'step', 'step', 'step']
    """
    names = (
        list(FRAMEWORKS) if framework == "both" else [one_of("framework", framework, FRAMEWORKS)]
    )
    try:
        numbers = sorted(
            {whole("devices", int(n), at_least=1, at_most=64) for n in devices.split(",")}
        )
    except ValueError:
        raise LabError(f"--devices takes numbers such as 1,2,4, got {devices!r}.") from None
    hardware = survey()
    most, what = hardware.cores.usable, "core"
    if hardware.gpus and not link:
        most, what = len(hardware.gpus), "GPU"
    if nodes:
        most, what = 64, "rank"
    parts: list[dict[str, Any]] = []
    for count in numbers:
        why = ""
        if count > most:
            why = f"{count} devices and {counted(most, what)}: it would measure time slicing"
        rows = [*ALONE] if count == 1 else [("all-reduce", "float32", 2.0)]
        rows += [("step", model, weight if count > 1 else weight / 3) for model, weight in STEPS]
        for name in names:
            missing = why
            if name == "torch" and not find("torch").stamp:
                missing = "the environment torch is not built: labkit env build torch"
            parts += [
                {"part": p, "key": k, "framework": name, "devices": count, "weight": w,
                 "says": missing}
                for p, k, w in rows
            ]  # fmt: skip
        if count > 1 and not (link or nodes or why):
            mpi = {"part": "all-reduce", "key": "float32", "framework": "mpi", "devices": count}
            parts.append({**mpi, "weight": 1.0, "says": _why_no_mpi()})
    how = {"seconds": seconds, "link": link or "", "nodes": nodes or 0, "gpus": gpus or 0}
    return {**how, "parts": parts}


def _why_no_mpi() -> str:
    try:
        mpiexec()
    except LabError as fault:
        return str(fault)
    return ""


def run(plan: dict[str, Any], file: Path, began: float, *, resume: bool = False) -> None:
    """Measure what is missing, and append it to the file."""
    kept = _begin(file, plan, resume)
    wall = kept.wall
    done = {part.name for part in kept.parts if part.outcome == "done"}
    todo = [part for part in plan["parts"] if _name(part) not in done]
    out = os.open(file, os.O_WRONLY | os.O_APPEND)

    def write(**content: Any) -> None:
        os.write(out, f"{json.dumps(content, ensure_ascii=False)}\n".encode())

    for part in (one for one in todo if one["says"]):
        write(**{k: v for k, v in part.items() if k != "weight"}, outcome="skipped")
    todo = [part for part in todo if not part["says"]]
    share = sum(p["weight"] for p in todo) / max(1e-9, _weight(plan))
    seconds = plan["seconds"] * share
    end = began + max(seconds, 1.0)
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for part in todo:
        groups.setdefault((part["framework"], part["devices"]), []).append(part)
    at = time.strftime("%H:%M:%S", time.localtime(end))
    _say(
        f"This study takes {seconds_text(seconds)}, until {at}: "
        f"{counted(len(todo), 'part')}, {counted(len(groups), 'group')} of processes. Ctrl-C keeps "
        "what is measured."
    )
    sampler = _Sampler(out, wall, kept.sources)
    try:
        for (framework, devices), parts in groups.items():
            rest = sum(p["weight"] for p in todo[todo.index(parts[0]) :])
            left = end - PAGE * min(1.0, seconds / 60) - time.time()
            until = time.time() + left * sum(p["weight"] for p in parts) / rest
            takes = seconds_text(max(0.0, until - time.time()))
            _say(f"{framework}, {counted(devices, 'device')}: {takes}")
            told = {**plan, "parts": parts, "devices": devices, "file": str(file.resolve()),
                    "wall": wall, "until": until}  # fmt: skip
            if framework == "mpi":
                _time_mpi(told, write)
            else:
                _measure_in_ranks(framework, told, write, OVER * plan["seconds"])
    finally:
        sampler.stop()
        write(end=round(time.time() - wall, 4))
        os.close(out)


def _weight(plan: dict[str, Any]) -> float:
    return float(sum(part["weight"] for part in plan["parts"] if not part["says"]))


def _name(part: dict[str, Any]) -> str:
    return f"{part['part']}/{part['key']}, {part['framework']}, {part['devices']}"


def _begin(file: Path, plan: dict[str, Any], resume: bool) -> Study:
    """Write the header, or drop the parts that were not done from the file to resume."""
    if resume:
        atomic_write(file, "".join(f"{text}\n" for text in load(file).kept_lines()))
        return load(file)
    if file.exists():
        raise LabError(f"{str(file)!r} is there already: give --out another name, or --resume it.")
    hardware = survey()
    where = SamplerClient(print).header
    header = {
        "labkit": "recording", "format": 1, **dataclasses.asdict(where), "every": 0.2,
        "title": "A study", "study": 1, "wall": time.time(), "plan": plan,
    }  # fmt: skip
    machine = {
        "cpu": hardware.cores.name, "cores": hardware.cores.usable,
        "gpus": [gpu.name for gpu in hardware.gpus], "memory": hardware.memory.total,
        "load": [round(n, 2) for n in os.getloadavg()], "busy": round(busy(0.2), 3),
    }  # fmt: skip
    lines = json.dumps(header), json.dumps({"machine": machine})
    atomic_write(file, "".join(f"{text}\n" for text in lines))
    return load(file)


class _Sampler:
    """The telemetry of this machine, in the file of the study and on its clock."""

    def __init__(self, out: int, wall: float, sources: int) -> None:
        self._out, self._sources = out, sources
        self._client = SamplerClient(self._take, 0.2)
        clock = time.monotonic() - (time.time() - wall)
        self._client.header = dataclasses.replace(self._client.header, clock=clock)
        self._client.start()
        self.stop = self._client.stop

    def _take(self, text: str) -> None:
        """Write rows with the numbers of sources in this file; no header, no users."""
        for sent in text.split("\n"):
            line = sent
            if row := re.match(r"\[(\d+),", line):
                line = f"[{int(row[1]) + self._sources}{line[row.end(1) :]}"
            elif not line.startswith(('{"source"', '{"state"', '{"cost"')):
                continue
            os.write(self._out, f"{line}\n".encode())


def _measure_in_ranks(framework: str, told: dict[str, Any], write: Any, over: float) -> None:
    """Run the parts in ranks: one process, or one for each device."""
    devices, links = told["devices"], bool(told["link"] or told["nodes"])
    ranks = devices if framework == "torch" or (links and devices > 1) else 1
    how: dict[str, Any] = {"environment": "torch"} if framework == "torch" else {}
    how |= {} if told["nodes"] else {"keep_warm": True}  # the next ranks import nothing again
    if told["nodes"]:
        how |= {"engine": "slurm", "nodes": min(told["nodes"], ranks)}
        how |= {"gpus": told["gpus"]} if told["gpus"] else {}
    elif told["link"] and ranks > 1:
        how["link"] = told["link"]
    try:
        with cluster.Cluster(ranks, **how) as c:
            handle = c.start(FRAMEWORKS[framework], {**told, "ranks": ranks}, show=False)
            timer = threading.Timer(max(1.0, told["until"] + over - time.time()), handle.stop)
            timer.start()
            try:
                handle.finish(timeout=2 * told["seconds"] + 60).raise_errors()
            finally:
                timer.cancel()
    except LabError as fault:
        for part in told["parts"]:
            says = f"it was not done: {anonymous(str(fault))}"
            write(**{k: part[k] for k in ("part", "key", "framework", "devices")}, says=says,
                  outcome="cut off")  # fmt: skip


def anonymous(text: str) -> str:
    r"""Returns the first line of a message, without paths: a home folder holds a name.

    >>> anonymous("OSError in /srv/ann/labkit/x.py: no\nTraceback")
    'OSError in …: no'
    """
    first = text.strip().split("\n")[0]
    return re.sub(r"(?<!\w)[/~][\w./~@+-]*[\w/]", "…", first).replace(os.uname().nodename, "…")[
        :200
    ]


def _time_mpi(told: dict[str, Any], write: Any) -> None:
    """The MPI library's all-reduce, by the bench of the course."""
    (part,) = told["parts"]
    what = {k: part[k] for k in ("key", "framework", "devices")}
    start = time.time() - told["wall"]
    left = told["until"] - time.time()
    outcome, says, on, rounds = "cut off", "no time was left", "", 0
    if left > 1:
        try:
            bench = collectives.bench.measure(
                ranks=told["devices"], sizes=SIZES, contenders=("mpi",), rounds=200,
                seconds_per_size=max(0.1, (left - 1) / len(SIZES) / 1.3), timeout=left + 10,
            )  # fmt: skip
            rounds = min(len(one.seconds) for one in bench.timings)
            outcome, says, on = "done", "", f"{told['devices']} ranks of {bench.library}"
            for one in bench.timings:
                for number, seconds in enumerate(one.seconds[:rounds]):
                    write(
                        sample="all-reduce", **what, contender=str(one.nbytes), round=number,
                        start=round(start, 4), wall=seconds * one.calls, cpu=0.0,
                        work=one.nbytes * one.calls, count=one.calls,
                    )  # fmt: skip
        except LabError as fault:
            says = anonymous(str(fault))
    write(part="all-reduce", **what, outcome=outcome, says=says, on=on, start=round(start, 4),
          stop=round(time.time() - told["wall"], 4), threads=told["devices"])  # fmt: skip
