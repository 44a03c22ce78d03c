"""`labkit explain`: watch a command, measure what each suspected cause costs, say what to do."""

from __future__ import annotations

import importlib
import math
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from labkit import plain
from labkit.explain import findings
from labkit.explain.candidates import CORES, Candidate, candidates
from labkit.explain.causes import CAUSES, OF_RANKS, OF_TENSORFLOW, OF_TORCH, PARTS
from labkit.explain.explanation import Explanation, Predicted, RankParts
from labkit.explain.removals import Measuring, gain
from labkit.explain.runs import OneRun, Runs, can_protect
from labkit.explain.seen import Seen, seen
from labkit.kinds import LabError, measured

SECONDS = 180.0  # for the runs after the watched one
DRAWN = 12  # steps of a timeline


def main(chosen: Any) -> int:
    """The command line: the exit code is that of the watched program."""
    if chosen.compare:
        compare = importlib.import_module("labkit.explain.page").compare
        print(compare(*(plain.read(one, Explanation, "an explanation") for one in chosen.compare)))
        return 0
    command = chosen.program[1:] if chosen.program[:1] == ["--"] else chosen.program
    if not command:
        raise LabError("There is no command. Write it after --: labkit explain -- python train.py")
    for file in filter(None, (chosen.json, chosen.html)):
        if not file.absolute().parent.is_dir():  # said before the program runs for hours
            raise LabError(f"{file} lies in no folder. Make {file.parent} first.")
    found = explain(command, chosen.time, lambda text: print(text, file=sys.stderr, flush=True))
    print(f"\n{found!r}", file=sys.stderr)
    if chosen.json:
        plain.write(chosen.json, found)
    if chosen.html:
        page = importlib.import_module("labkit.explain.page").page
        plain.write_text(chosen.html, page(found))
    return found.exit_code


def explain(command: list[str], budget: float, say: Callable[[str], None]) -> Explanation:
    """Run the command once as it is, then as often as the budget of seconds allows."""
    runs = Runs(command)
    try:
        outcome = runs.watched()
        watched = seen(outcome.reports, str(runs.cwd.resolve()))
        if outcome.failed or watched is None:
            why = outcome.failed or "no training steps were seen in it"
            return _nothing(command, outcome, f"cannot tell: {why}")
        say(f"labkit explain: watched {watched.steps} steps; now {budget:.0f} s of runs in a copy")
        return _explain(runs, outcome, watched, budget, lambda text: say(f"labkit explain: {text}"))
    except Exception as fault:  # the exit code of a long run is not lost to a fault of ours
        if runs.ended is None or isinstance(fault, LabError):
            raise
        traceback.print_exc()
        return _nothing(command, runs.ended, f"cannot tell: labkit failed, {fault!r}")
    finally:
        runs.close()


def _explain(
    runs: Runs, outcome: OneRun, watched: Seen, budget: float, say: Callable[[str], None]
) -> Explanation:
    begin = time.monotonic()
    found = candidates(watched)
    measuring = Measuring(runs, watched, budget, say)
    measuring.refused = runs.uncopied or ("" if can_protect() else _UNPROTECTED)
    try:
        measuring.measure(found)
    except KeyboardInterrupt:  # what was measured until now counts
        measuring.refused = "it was stopped"
    if measuring.refused:
        for one in found:
            one.failed = one.failed or ("" if one.logs else measuring.refused)
    wrong = findings.wrong(watched)
    causes, looked, open_ = findings.causes(found)
    if not causes and not wrong and not open_ and (batch := _batch(watched)):
        found.append(batch)
        measuring.budget += 10 * measuring.start
        measuring.measure([batch])
        causes, looked, open_ = findings.causes(found)
    limit = _limit(watched, found)
    if not causes and not measuring.refused and budget:
        limit = " ".join(filter(None, (limit, measuring.arithmetic(), _forward(watched))))
    verdict = _verdict(watched, wrong, causes, open_, measuring.refused, outcome.code)
    load = statistics.fmean(measuring.loads) if measuring.loads else 0.0
    notes = [f"not watched: {k[13:]} ({v})" for r in watched.ranks for k, v in r["notes"].items()
             if k.startswith("not watched")]  # fmt: skip
    if load > 0.25:
        notes.append(f"other programs took {load:.1f} cores meanwhile: intervals are wide")
    return Explanation(
        kind=_here(), command=runs.command, exit_code=outcome.code,
        seconds=round(outcome.seconds, 2), step=watched.step, steps=watched.steps,
        ranks=[_rank(watched, one) for one in watched.ranks], verdict=verdict,
        findings=[*wrong, *causes], looked_for=looked,
        not_seen=_not_seen(watched, found), limit=limit, overhead=_overhead(watched),
        prediction=_prediction(watched, found), notes=notes,
        measured_for=round(time.monotonic() - begin, 1),
    )  # fmt: skip


_UNPROTECTED = (
    "this system cannot keep a run from writing outside of its copy (Linux 6.2 or newer can)"
)


def _here() -> Any:
    return measured(f"{platform.machine()}, {CORES} cores, {datetime.now(UTC):%Y-%m-%d}")


def _nothing(command: list[str], outcome: OneRun, verdict: str) -> Explanation:
    return Explanation(
        _here(), command, outcome.code, round(outcome.seconds, 2), 0.0, 0, [], verdict, [], [], [],
        "", 0.0,
    )  # fmt: skip


def _batch(watched: Seen) -> Candidate | None:
    """A larger batch makes everything cheaper, so it is tried where nothing else was found."""
    replicas = watched.note("replicas") or watched.world
    known = watched.note("batch") or watched.note(watched.note("loader") or "loader0")
    if watched.step > 0.03 or replicas < 2 or not known:
        return None
    line = watched.site("batch", watched.note("loader") or "loader0")
    size = known["batch"] if isinstance(known, dict) else known
    return Candidate(
        "small_batch", ["batch"], f"a batch of {size}, a step of {1e3 * watched.step:.1f} ms on "
        f"{replicas} replicas; four times the batch", line, fix=True, limit=1.6, scale=4.0,
        values={"batch": 4},
    )  # fmt: skip


def _verdict(
    watched: Seen,
    wrong: list[Any],
    causes: list[Any],
    open_: list[Candidate],
    refused: str,
    code: int,
) -> str:
    if wrong or causes:
        return str((wrong or causes)[0].cause)
    if refused:
        return f"cannot tell: {refused}"
    if open_:
        names = "; ".join(one.says for one in open_)
        return f"cannot tell, runs vary too much or could not be made: {names}"
    if watched.elapsed < 0.5 or code:
        return f"cannot tell: {watched.elapsed:.1f} s of steps, exit code {code}"
    return "nothing found that would make it faster"


def _not_seen(watched: Seen, found: list[Candidate]) -> list[str]:
    """The causes that the watched run gave no reason to measure."""
    had = {one.key for one in found}
    other = OF_TENSORFLOW if watched.torch else OF_TORCH
    alone = OF_RANKS if watched.world < 2 else set()
    return [key.replace("_", " ") for key in CAUSES if key not in had | other | alone]


def _limit(watched: Seen, found: list[Candidate]) -> str:
    """What the time goes to when nothing is wrong."""
    parts = sorted(((watched.share(p), words) for p, words in PARTS.items()), reverse=True)
    told = ", ".join(f"{words} {100 * share:.0f} %" for share, words in parts[:3] if share > 0.02)
    comm = next((gain(one.logs) for one in found if one.key == "communication"), None)
    if comm and comm.low > 1.05:
        told += f"; without communication {comm.low:.2f} to {comm.high:.2f} times as fast"
    return f"Its time: {told}."


def _forward(watched: Seen) -> str:
    """Which line within the model takes most of the forward pass."""
    line, callee, share = watched.hot("forward")
    if share < 0.3 or line in {watched.short(f"{a}:{b}") for a, b in watched.essential}:
        return ""
    called = f" ({callee.removeprefix('torch.nn.modules.')})" if callee else ""
    return f"{100 * share:.0f} % of the forward pass is line {line}{called}."


def _overhead(watched: Seen) -> float:
    """The share of the steps that the agent's own code took."""
    one = watched.lead
    spans = sum(n for name, n in one["count"].items() if not name.startswith(("dist.", "ran ")))
    own = one["own"] + float(one["notes"].get("sampling", 0.0)) + 1.5e-6 * spans
    return float(own / watched.elapsed)


def _rank(watched: Seen, report: dict[str, Any]) -> RankParts:
    window = {k: v for k, v in report["window"].items() if k in PARTS}
    elapsed = report["marks"][watched.kind][-1] - report["marks"][watched.kind][2]
    window["rest"] = max(0.0, elapsed - sum(window.values()))
    count = max(1, len(report["marks"][watched.kind]) - 3)
    marks = report["marks"][watched.kind]
    middle = _middle(watched)
    drawn = marks[middle - 1 : middle + DRAWN]
    zero = watched.lead["marks"][watched.kind][middle - 1]
    spans = [(p, round(s - zero, 6), round(d, 6)) for p, s, d in report["spans"]
             if drawn[0] <= s <= drawn[-1]]  # fmt: skip
    parts = {k: v / count for k, v in window.items()}
    return RankParts(parts, [round(m - zero, 6) for m in drawn], spans)


def _middle(watched: Seen) -> int:
    """The first step that is drawn: of a long run only the first spans are kept."""
    known: list[int] = []
    for one in watched.ranks:
        last = max((s + d for _, s, d in one["spans"]), default=math.inf)
        known.append(sum(mark <= last for mark in one["marks"][watched.kind]))
    return max(3, min(watched.steps // 2, min(known) - DRAWN))


def _prediction(watched: Seen, found: list[Candidate]) -> list[Predicted]:
    """Modelled: communication grows as 2(n-1)/n of a ring, everything else stays."""
    comm = next((gain(one.logs) for one in found if one.key == "communication"), None)
    if watched.world < 2 or comm is None:
        return []
    here = 2 * (watched.world - 1) / watched.world
    ends = [watched.step * max(0.0, 1 - 1 / times) / here for times in (comm.low, comm.high)]
    rows = []
    for devices in (1, 2, 4, 8):
        factor = 2 * (devices - 1) / devices
        times = [watched.step - one * here + one * factor for one in ends]
        rows.append(Predicted(devices, min(times), max(times)))
    return rows
