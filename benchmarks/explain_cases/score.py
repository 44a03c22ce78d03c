"""Run `labkit explain` on the cases and compare what it names with what was planted.

    python benchmarks/explain_cases/score.py --out FOLDER [--for SECONDS] [case ...]

`truth.json` holds what the fixes gain (truth.py); where it has no line, the gain is not judged.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from truth import ANSWERS, HERE, command

KEYS = {  # the cases were written before the rules, with words of their own
    "many_small_collectives": ["many_collectives"], "staggered_garbage_collection": ["collection"],
    "micro_step_reduction": ["micro_steps"], "too_many_threads": ["many_threads"],
    "find_unused_parameters": ["find_unused"], "no_sync_without_effect": ["no_sync"],
    "sparse_all_gather": ["sparse"], "uneven_lengths": ["uneven"],
    "one_unit_without_overlap": ["buckets"], "too_few_threads": ["few_threads"],
    "item_each_example": ["synchronisation", "python"],
    "python_augmentation": ["python_loop_input"], "loop_in_collate": ["python_loop_input"],
    "too_few_workers": ["few_workers"], "evaluation_often": ["evaluation"],
    "workers_start_each_epoch": ["workers_start"], "checkpoint_often": ["checkpoints"],
    "synchronous_logging": ["logging"], "storage_format": ["text_format"],
    "py_function": ["python_input"], "eager_loop": ["eager"], "too_little_work": ["small_batch"],
    "serial_input": ["serial_map"],
}  # fmt: skip


def run(name: str, out: Path, seconds: float) -> dict[str, Any]:
    """What explain says of a case."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in HERE.glob(f"{name}.*"):
        (folder / file.name).write_bytes(file.read_bytes())
    told = out / f"{name}.json"
    explain = [sys.executable, "-m", "labkit.cli", "explain", "--for", str(seconds), "--json", told]
    with (out / f"{name}.log").open("w") as log:
        subprocess.run(
            [*explain, "--", *command(name), f"{name}.py"], cwd=folder, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, timeout=900,
        )  # fmt: skip
    return dict(json.loads(told.read_text("utf-8"))["value"])


def judged(name: str, found: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """Whether the first finding is the planted one, and its interval holds the fix's gain."""
    answer, first = ANSWERS[name], (found["findings"] or [{"key": "none", "gain": None}])[0]
    wanted = KEYS.get(answer.get("cause", "none"), [answer.get("cause", "none")])
    gain, real = first["gain"], (truth.get(name) or {}).get("gain")
    inside = None
    if gain and real and first["key"] in wanted:
        inside = gain["low"] <= real[2] and real[1] <= gain["high"]
    return {
        "kind": answer["kind"], "wanted": wanted[0], "first": first["key"],
        "named": first["key"] in wanted, "others": [f["key"] for f in found["findings"][1:]],
        "stated": gain and [gain["low"], gain["value"], gain["high"]], "true": real,
        "inside": inside, "verdict": found["verdict"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--for", dest="time", type=float, default=120.0)
    parser.add_argument("names", nargs="*", help="cases; all if none is named")
    options = parser.parse_args()
    options.out = options.out.resolve()
    truths = HERE / "truth.json"
    truth = json.loads(truths.read_text("utf-8")) if truths.exists() else {}
    rows = {}
    for name in options.names or ANSWERS:
        begin = time.monotonic()
        row = judged(name, run(name, options.out, options.time), truth)
        rows[name] = row
        mark = "ok" if row["named"] else "NO"
        print(
            f"{name:18} {mark} {row['wanted']:18} first {row['first']:18} {row['stated']} "
            f"true {row['true']} {row['others']} {time.monotonic() - begin:.0f} s "
            f"{'' if row['named'] else row['verdict'][:90]}", flush=True,
        )  # fmt: skip
    for kind in ("planted", "clean", "wrong"):
        mine = [row for row in rows.values() if row["kind"] == kind]
        if mine:
            print(f"{kind}: {sum(row['named'] for row in mine)} of {len(mine)}")
    print("interval holds the fix's gain:", sum(r["inside"] is True for r in rows.values()))
    (options.out / "score.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
