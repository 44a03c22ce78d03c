"""What watching 8 GPUs ten times a second costs: labkit's panel beside the tools that one knows.

All of them ask the same NVML, with the same nvidia-ml-py: the driver's where there are GPUs, else
the stand-in of labkit's tests, 8 GPUs whose metrics move. Each samples in a process of its own; in
every round each does so for a few seconds, in an order drawn anew, while the others rest. What
counts is the CPU time of all its threads and processes; importing and starting do not.

- nvitop: `ResourceMetricCollector`, on a thread of its own, without processes. It keeps the mean,
  minimum and maximum since its start ("statistics"); with `daemonize` each result can be kept.
- jupyterlab-nvdashboard: the handler behind its "GPU Resources". It keeps nothing; the browser's
  tab has the last 1,000 values. Sending is not counted, neither here nor with labkit.
- gpustat: `GPUStatCollection.new_query`, which sleeps 0.1 s per GPU and so manages one a second.
- nvidia-smi, started anew for each sample, as scripts do. Where there is none, a stand-in of 30
  lines of C shows what starting a program alone costs.
- labkit: the whole panel of GPUs and host, with its sampler's process, all readings kept. No page
  shows it, as with the peers: a page that does has it hand on samples twice a second.

The promise of the course: at most a tenth of the cheapest that keeps a history, which is readings
over time. Told as well: against the cheapest that keeps anything (nvitop's three numbers).

Then a job trains in a kernel beside a shown panel, its messages really sent to a front end, which
here throws them away: what JupyterLab's server and a browser take is not labkit's, and is none of
it where they run on another machine. (On the same two cores they take more than labkit: measured
once with Chromium without a GPU, 2 ms of CPU a second for the server, 60 for drawing.)
The first promise: sampler and kernel together take less than 1 % of one core for the panel. That is
CPU time, so a busy machine and a quick run tell it, too. The second: the slowdown's interval lies
below 1 %; only the full run, on a machine that does nothing else, can tell. It is measured twice.
All in all: stretches of half a second with the sampler running and stopped (by a signal), in turns;
of each group the quicker halves are compared, for other guests of the machine come in bursts.
And finer, because on a shared machine one per cent is hard to see: a few steps at a time, in the
half of the time that follows a sample against the other half, ten times a second. That misses what
a sample leaves behind for more than 45 ms, which the first would show.

The peers live in .venv/peers, made on first use from requirements/peers.txt (60 MB to load); what
cannot be installed is left out. Without --quick all takes a third of an hour. Linux only: other
systems do not tell the CPU time exactly enough.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import Row, main
from peers import peers_python
from telemetry_parts.kernel import Kernel

from labkit.timing import judge

ROOT = Path(__file__).resolve().parent.parent
PARTS = Path(__file__).resolve().parent / "telemetry_parts"
TENTH, ALLOWED, SURE = 10, 0.01, 0.95
FULL_RATE = 9.0  # samples a second that count as ten
OURS = "labkit_panel"


@dataclass(frozen=True)
class Peer:
    """Who it is, whether it keeps what it has seen, and whether it must be installed."""

    name: str
    keeps: str
    installed: bool = True


PEERS = {
    "nvitop_statistics": Peer("nvitop, statistics", "mean, min, max"),
    "nvitop_kept": Peer("nvitop, each result kept", "yes"),
    "nvdashboard_handler": Peer("jupyterlab-nvdashboard's handler", "no"),
    "gpustat_query": Peer("gpustat", "no"),
    "nvidia_smi": Peer("nvidia-smi, polled", "no", installed=False),
}


# --- what is there to compare with


def nvml(folder: Path) -> dict[str, str]:
    """The environment in which the GPUs are found: as it is, or with the stand-in."""
    import labkit

    found = labkit.hardware()
    real = shutil.which("nvidia-smi")
    if found.gpus:
        print(f"NVML: the driver's, {len(found.gpus)} GPUs; nvidia-smi: {real or 'none'}")
        return {}
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise SystemExit(
            "There is no GPU here, and no C compiler (gcc) to build the stand-in with."
        )
    build = [compiler, "-O2", "-Wall"]
    stand_in = ROOT / "tests" / "hardware" / "nvml_stand_in.c"
    library = ["-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1"]
    subprocess.run([*build, *library, stand_in, PARTS / "nvml.c", "-lm"], check=True)
    program = ["-o", folder / "nvidia-smi", PARTS / "nvidia_smi.c", "-ldl"]
    subprocess.run([*build, *program], check=True)
    print("NVML: the stand-in of the tests, 8 GPUs that train; nvidia-smi: a stand-in, too")
    return {
        "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":"),
        "NVML_SCENE": "eight",
        "PATH": f"{folder}:{os.environ.get('PATH', '')}",
    }


# --- the CPU that each takes


class Worker:
    """A candidate in a process of its own; it samples while it is asked to."""

    def __init__(
        self, name: str, python: str | Path, environment: dict[str, str], log: Path
    ) -> None:
        self.name, self._log = name, log / f"{name}.log"
        with self._log.open("w") as complaints:
            self.process = subprocess.Popen(
                [python, PARTS / "worker.py", name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
                text=True, env={**os.environ, **environment},
            )  # fmt: skip

    def ready(self) -> None:
        """Wait until it has imported everything and has sampled once."""
        self._answer()

    def sample(self, seconds: float) -> dict[str, float]:
        """CPU seconds a second, and samples a second."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        found: dict[str, float] = json.loads(self._answer())
        return found

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            reason = self._log.read_text(encoding="utf-8", errors="replace").strip()
            raise SystemExit(f"{self.name} ended by itself.\n{reason[-2000:]}")
        return line

    def stop(self) -> None:
        """End it, and with its standard input what it has started."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def costs(environment: dict[str, str], folder: Path, quick: bool) -> dict[str, list[dict]]:
    """For each candidate one sample a round."""
    python = peers_python("nvitop, gpustat and jupyterlab-nvdashboard are")
    names = [OURS, *(name for name, peer in PEERS.items() if python or not peer.installed)]
    if "PATH" not in environment and shutil.which("nvidia-smi") is None:
        names.remove("nvidia_smi")
    seen: dict[str, list[dict]] = {name: [] for name in names}
    workers: list[Worker] = []
    try:
        for name in names:
            theirs = name in PEERS and PEERS[name].installed
            workers.append(Worker(name, python if theirs else sys.executable, environment, folder))
        for worker in workers:
            worker.ready()
        for _ in range(3 if quick else 10):
            for worker in random.sample(workers, len(workers)):
                seen[worker.name].append(worker.sample(1.0 if quick else 5.0))
    finally:
        for worker in workers:
            worker.stop()
    return seen


def cost_rows(seen: dict[str, list[dict]]) -> list[Row]:
    print(f"\n{'':34}{'samples a second':>18}{'CPU, ms a second':>18}   keeps a history")
    for name, samples in seen.items():
        peer = PEERS.get(name, Peer("labkit, the whole panel", "yes"))
        cpu, rate = (_median([sample[key] for sample in samples]) for key in ("cpu", "rate"))
        print(f"{peer.name:<34}{rate:>18.1f}{1000 * cpu:>18.2f}   {peer.keeps}", flush=True)
    rows, keeping = [], []
    for name, samples in seen.items():
        if name == OURS:
            continue
        logs = [math.log(t["cpu"] / o["cpu"]) for o, t in zip(seen[OURS], samples, strict=True)]
        found = judge(OURS, name, logs).estimate
        rate = _median([sample["rate"] for sample in samples])
        what = "CPU, theirs / ours" + (f", at {rate:.1f} looks/s" if rate < FULL_RATE else "")
        row = Row(what, PEERS[name].name, found.value, found.low, found.high)
        rows.append(row)
        if PEERS[name].keeps != "no":
            keeping.append((row, PEERS[name].keeps))
    full = _median([sample["rate"] for sample in seen[OURS]]) >= FULL_RATE
    readings = [row for row, keeps in keeping if keeps == "yes"]
    for promise, among in (
        ("a tenth of the cheapest that keeps a history of readings", readings),
        ("a tenth of the cheapest that keeps anything", [row for row, _ in keeping]),
    ):
        print(f"  at most {promise}{_verdict(among, full)}")
    return rows


def _verdict(among: list[Row], full: bool) -> str:
    if not among:
        return ": nothing to compare with"
    cheapest = min(among, key=lambda row: row.ratio)
    if full and cheapest.low >= TENTH:
        word = "reached"
    elif cheapest.high < TENTH or not full:
        word = "MISSED"
    else:
        word = "cannot tell"
    return f" ({cheapest.against}, {cheapest.low:.1f} to {cheapest.high:.1f} times): {word}"


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) / 2


# --- what it does to training


def slowdown_rows(environment: dict[str, str], quick: bool) -> list[Row]:
    groups, size, stretch, seconds = (2, 2, 0.5, 4) if quick else (60, 8, 0.5, 240)
    kernel = Kernel(environment)
    stretches: list[str] = []
    samples: list[str] = []
    own: list[str] = []
    try:
        kernel.run(f"import sys; sys.path.insert(0, {str(PARTS)!r}); import cell")
        kernel.run("training = cell.Training()")
        kernel.run(f"training.own_cpu({5 if quick else 60})", own.append)
        kernel.run(f"training.stretches({groups}, {size}, {stretch})", stretches.append)
        heard = kernel.to_widgets
        kernel.run(f"training.around_samples({seconds})", samples.append)
        heard_of_samples = kernel.to_widgets - heard
    finally:
        kernel.stop()
    found = _printed(stretches)
    for messages, watched in ((heard, groups * size * stretch), (heard_of_samples, seconds)):
        if messages < watched:
            raise SystemExit(f"Only {messages} messages were sent to the front end.")
    gains = [math.log(_quick_half(group["off"]) / _quick_half(group["on"])) for group in found]
    taken = json.loads("".join(own))
    parts = ", ".join(f"{name} {1000 * part:.2f}" for name, part in taken.items())
    word = "reached" if sum(taken.values()) < ALLOWED else "MISSED"
    print(f"\nCPU beside training, ms a second: {parts}; below {ALLOWED:.0%} of a core: {word}")
    print(f"Training beside a shown panel, {heard + heard_of_samples} messages to the front end")
    rows = [_row("training, panel off / on", "no panel", gains, "all in all", quick)]
    # Half of the time follows a sample. The other half is taken to be as without a panel.
    gains = [math.log(pair["off"] / pair["on"]) / 2 for pair in _printed(samples)]
    what = "right after a sample, against the time between samples"
    return [*rows, _row("training, between looks / all", "between looks", gains, what, quick)]


def _row(what: str, against: str, gains: list[float], how: str, quick: bool) -> Row:
    found = judge("on", "off", gains).estimate
    slower, least, most = (100 * (1 / end - 1) for end in (found.value, found.high, found.low))
    sure = found.confidence >= SURE
    if sure and most < 100 * ALLOWED:
        word = "reached"
    elif sure and least > 100 * ALLOWED:
        word = "MISSED"
    else:
        word = "cannot tell" + (" from so few; leave out --quick" if quick else "")
    print(
        f"  {how}: {slower:+.2f} % of time ({least:+.2f} to {most:+.2f} %, "
        f"{100 * found.confidence:.0f} %; {len(gains)} groups); below {ALLOWED:.0%}: {word}",
        flush=True,
    )
    return Row(what, against, found.value, found.low, found.high)


def _printed(said: list[str]) -> list[dict]:
    return [json.loads(line) for line in "".join(said).splitlines() if line.startswith('{"o')]


def _quick_half(seconds: list[float]) -> float:
    quick = sorted(seconds)[: max(1, len(seconds) // 2)]
    return sum(quick) / len(quick)


def results(quick: bool) -> list[Row]:
    if sys.platform != "linux":
        raise SystemExit("This benchmark needs Linux: only there is CPU time told exactly enough.")
    with tempfile.TemporaryDirectory() as name:
        environment = nvml(Path(name))
        rows = cost_rows(costs(environment, Path(name), quick))
        return [*rows, *slowdown_rows(environment, quick)]


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
