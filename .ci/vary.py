"""`make vary`: the notebooks and the exercises' tests under varied conditions, a row for each.

    make vary                             all rows; docs/varied.md keeps what they found
    make vary ROWS="digits one-core"      some of them
    make vary ROWS=digits ONLY="16 20"    some of the files, to look closer; nothing is kept
    make vary ROWS=list

A row runs in this checkout, or in a fresh copy whose text may be changed (`edits`). What pytest
prints lies in `.venv/vary/ROW.log`. A row that cannot run here says why and is skipped.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "varied.md"
HEADER = """# Varied

`make vary` runs the notebooks and the exercises' tests under each of these conditions.

| row | what is varied | result | seconds | date | machine |
|---|---|---|---|---|---|"""
LONGEST = 5400  # seconds of a row; one that hangs longer is ended, and the next row runs
JOBS = os.environ.get("JOBS", "auto")
CORE = str(min(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else "0"
FRAMEWORKS = (
    "5",
    "60_",
    "61_",
    "62_",
    "test_pytorch",
    "test_horovod",
    "test_federated",
    "test_fram",
)
FASHION = "/usr/share/datasets/fashion-mnist"
NO_NETWORK = {"LABKIT_OFFLINE": "1", "LABKIT_CACHE": "{folder}/cache"}
# (file of the copy, pattern, what takes its place)
NO_FASHION = ("labkit/datasets/published.py", f'"{FASHION}"', '"/nowhere"')
OTHER_SEED = ("labkit/datasets/synthetic.py", r"rng\((\(?)CLASSES", r"rng(\g<1>1 + CLASSES")
CHECKSUM = ("labkit/datasets/published.py", '"[0-9a-f]{64}"')
BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**6))"
# In every Python process; clocks that measure time are left alone, as a system leaves them.
# Jupyter's client waits for a kernel by this clock, and Flower's messages expire by it: both would
# give up at a jump.
CLOCK = """import sys, time
now, now_ns = time.time, time.time_ns
def jump():
    asked_by = sys._getframe(2).f_globals.get("__name__", "")
    waits = asked_by == "jupyter_client.client" or asked_by.startswith("flwr.")
    return 0 if waits else 3600 * (int(time.monotonic() / 5) % 3 - 1)
time.time = lambda: now() + jump()
time.time_ns = lambda: now_ns() + jump() * 10**9
"""


@dataclass(frozen=True)
class Row:
    """One condition. `{folder}` in a variable is the row's own folder, which `prepare` may fill."""

    name: str
    what: str
    variables: Mapping[str, str] = field(default_factory=dict)
    lacks: Callable[[], str] = str  # why it cannot run here
    files: tuple[str, ...] = ("",)  # how their names begin
    copied: bool = False
    edits: tuple[tuple[str, str, str], ...] = ()
    prepare: Callable[[Path], object] = str
    prefix: tuple[str, ...] = ()
    burners: int = 0
    stranger: bool = False
    may_say_so: bool = False  # a notebook may end with a sentence, which is a LabError


def absent(path: str | Path) -> str:
    """Why a row that needs this cannot run."""
    return "" if Path(path).exists() else f"there is no {path} here"


def draw_digits(folder: Path) -> None:
    """28×28 images from 1,797 handwritten 8×8 ones: enlarged, turned, moved; in MNIST's place.

    The digits are those of scikit-learn: E. Alpaydin and C. Kaynak, Optical Recognition of
    Handwritten Digits, UCI Machine Learning Repository (CC BY 4.0). No digit is in both parts.
    """
    import numpy as np

    with gzip.open(ROOT / ".ci" / "digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    small = np.pad(table[:, :64].reshape(-1, 8, 8) * (255 / 16), ((0, 0), (1, 2), (1, 2)))
    labels, rng = table[:, 64].astype(np.uint8), np.random.default_rng(7)
    order, arrays = rng.permutation(len(small)), {}
    for part, sources, count in ("test", order[:300], 10_000), ("train", order[300:], 60_000):
        chosen = rng.choice(sources, count)
        images = np.empty((count, 28, 28), np.uint8)
        for index, digit in enumerate(small[chosen]):
            angle, zoom, moved = (
                rng.uniform(-0.25, 0.25),
                rng.uniform(2.2, 2.9),
                rng.uniform(11, 16, 2),
            )
            y, x = (np.mgrid[:28, :28] - moved[:, None, None]) / zoom
            down = np.clip(np.cos(angle) * y - np.sin(angle) * x + 4.5, 0, 9)
            right = np.clip(np.cos(angle) * x + np.sin(angle) * y + 4.5, 0, 9)
            i, j = down.astype(int), right.astype(int)
            u, v = right - j, down - i
            above = digit[i, j] * (1 - u) + digit[i, j + 1] * u
            below = digit[i + 1, j] * (1 - u) + digit[i + 1, j + 1] * u
            images[index] = above * (1 - v) + below * v
        arrays |= {f"x_{part}": images, f"y_{part}": labels[chosen]}
    file = folder / "cache" / "mnist.npz"
    file.parent.mkdir()
    np.savez(file, **arrays)
    change(folder / "copy", *CHECKSUM, f'"{hashlib.sha256(file.read_bytes()).hexdigest()}"')


def german(folder: Path) -> None:
    """Make a locale with a decimal comma."""
    made = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")]
    subprocess.run(made, check=True)


def change(copy: Path, name: str, pattern: str, text: str) -> None:
    """Change a file of the copy; when the pattern is no longer there, the row needs a new one."""
    changed, count = re.subn(pattern, text, (copy / name).read_text(encoding="utf-8"))
    assert count, f"{name} has no {pattern}"
    (copy / name).write_text(changed, encoding="utf-8")


ROWS = (
    Row("digits", "handwritten digits in MNIST's place", {"LABKIT_CACHE": "{folder}/cache"},
        copied=True, prepare=draw_digits),
    Row("fashion", "Fashion-MNIST", NO_NETWORK, lambda: absent(FASHION)),
    Row("synthetic", "synthetic data", NO_NETWORK, copied=True, edits=(NO_FASHION,)),
    Row("other-seed", "synthetic data of another seed", NO_NETWORK, copied=True,
        edits=(NO_FASHION, OTHER_SEED)),
    Row("old-cpu", "SSE4 at most (OpenBLAS, XLA, oneDNN), TensorFlow without oneDNN", {
        "ONEDNN_MAX_CPU_ISA": "SSE41", "TF_ENABLE_ONEDNN_OPTS": "0",
        "OPENBLAS_CORETYPE": "Nehalem", "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"},
        lambda: "" if platform.machine() in ("x86_64", "AMD64") else "the CPU is no x86_64"),
    Row("one-core", "one core for everything, also for four ranks",
        lacks=lambda: absent(shutil.which("taskset") or "taskset"), prefix=("taskset", "-c", CORE)),
    Row("busy", "eight processes that burn CPU beside it", burners=8),
    Row("stranger", "another user, installed afresh in a path with a space",
        {"HOME": "{folder}/home", "LABKIT_CACHE": "{folder}/home"},
        lambda: "" if os.geteuid() == 0 else "only root can run as another user",
        copied=True, stranger=True),
    Row("locale", "a locale with a decimal comma, another time zone",
        {"LOCPATH": "{folder}", "LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Kathmandu"},
        lambda: absent("/usr/share/i18n/locales/de_DE"), prepare=german),
    Row("hash-seed", "PYTHONHASHSEED=12345", {"PYTHONHASHSEED": "12345"}),
    Row("clock", "a wall clock that jumps by an hour every 5 s", {"PYTHONPATH": "{folder}"},
        prepare=lambda folder: (folder / "sitecustomize.py").write_text(CLOCK)),
    Row("not-built", "no environment of another framework built", copied=True, files=FRAMEWORKS),
    Row("no-links", "no hosts with links of a rate: ranks share the machine's network",
        {"LABKIT_NETWORK": "shared"}),
    Row("no-recording", "recordings missing: a lecture fails, and a LabError says why",
        copied=True, may_say_so=True, files=("15_", "5", "60_", "61_", "62_"),
        prepare=lambda folder: [
            shutil.rmtree(folder / "copy" / "notebooks" / name / "recordings")
            for name in ("", "written")]),
)  # fmt: skip


def files_of(row: Row, only: Sequence[str]) -> list[str]:
    """The notebooks and tests of a row, relative to the checkout."""
    found = sorted([*ROOT.glob("notebooks/[0-9c]*.ipynb"), *ROOT.glob("tests/exercises/test_*.py")])
    chosen = [file for file in found if any(part in file.name for part in only or [""])]
    return [f"{file.relative_to(ROOT)}" for file in chosen if file.name.startswith(row.files)]


@contextmanager
def burning(count: int) -> Iterator[None]:
    """So many processes that only compute."""
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def copy_of_checkout(target: Path) -> Path:
    """All files that git does not ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def run_to_end(command: list[str | Path], log: Path, **options: object) -> str:
    """Run it, with its output in the log; why it did not end by itself with 0 or 1."""
    with log.open("ab") as file:
        run = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, **options)
        try:
            status = run.wait(LONGEST)
        except subprocess.TimeoutExpired:
            return f"stopped after {LONGEST} s"
        finally:
            with suppress(ProcessLookupError):  # whatever of it is still there
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    return "" if status in (0, 1) else f"ended with status {status}"


def run_row(row: Row, files: list[str]) -> tuple[bool, str]:
    """Whether all passed, and the counts with what went wrong."""
    log = ROOT / ".venv" / "vary" / f"{row.name}.log"
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    # The space is for the row `stranger`.
    with tempfile.TemporaryDirectory(prefix="labkit ", ignore_cleanup_errors=True) as name:
        folder, python, wrong = Path(name), Path(sys.executable), ""
        place = copy_of_checkout(folder / "copy") if row.copied else ROOT
        for edit in row.edits:
            change(place, *edit)
        row.prepare(folder)
        variables = {key: text.replace("{folder}", name) for key, text in row.variables.items()}
        variables["PYTHONPATH"] = f"{variables.get('PYTHONPATH', '')}:{place}".strip(":")
        options: dict[str, object] = {"cwd": place, "env": {**os.environ, **variables}}
        if row.stranger:
            (folder / "home").mkdir()
            subprocess.run(["chown", "-R", "nobody", name], check=True)
            options |= {"user": "nobody", "group": "nogroup", "extra_groups": []}
            python = place / ".venv" / "bin" / "python"
            wrong = run_to_end(["make", "setup-test"], log, **options) or absent(python)
        report = folder / "report" / "pytest.xml"
        command = [*row.prefix, python, "-m", "pytest", "-n", JOBS, "--no-loadscope-reorder"]
        command += ["-p", "no:cacheprovider", f"--junitxml={report}", *files]
        with burning(row.burners):
            wrong = wrong or run_to_end(command, log, **options)
        counts, red = read_report(report, row.may_say_so)
    more = f"and {len(red) - 5} more" if len(red) > 5 else ""
    return not red and not wrong, "; ".join(filter(None, [counts, *red[:5], more, wrong]))


def read_report(report: Path, may_say_so: bool = False) -> tuple[str, list[str]]:
    """The counts of a run of pytest, and the names of what failed."""
    if not report.exists():
        return "no report", []
    cases = [*ET.parse(report).iter("testcase")]  # noqa: S314
    bad = [case for case in cases if {part.tag for part in case} & {"failure", "error"}]
    first: dict[str | None, str] = {}
    for case in bad:  # the cells after it may fail because of it
        first.setdefault(case.get("classname"), "".join(case.itertext()))
    if may_say_so:
        bad = [case for case in bad if "LabError" not in first[case.get("classname")]]
    skipped = sum(part.tag == "skipped" for case in cases for part in case)
    counts = f"{len(cases) - len(bad) - skipped} passed, {len(bad)} failed, {skipped} skipped"
    return counts, [f"{case.get('classname')} {case.get('name')}" for case in bad]


def keep(row: Row, result: str, seconds: float) -> None:
    """Write the row's line of the table; other rows, and a skipped one, keep what they found."""
    from labkit.hardware import machine_text

    old = KEPT.read_text(encoding="utf-8") if KEPT.exists() else ""
    lines = {line.split(" | ")[0][2:]: line for line in old.splitlines() if line.startswith("| ")}
    day, here = (
        dt.datetime.now(dt.UTC).date(),
        f"{machine_text()}, Python {platform.python_version()}",
    )
    if seconds or row.name not in lines:
        cells = row.name, row.what, result, f"{seconds:.0f}", str(day), here
        lines[row.name] = f"| {' | '.join(cells)} |"
    table = [lines[each.name] for each in ROWS if each.name in lines]
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text("\n".join([HEADER, *table, ""]), encoding="utf-8")


def todays() -> tuple[list[Row], int]:
    """Two rows, and which third of the files: in turn, so that all come up within weeks."""
    day, turns = dt.datetime.now(dt.UTC).toordinal(), (len(ROWS) + 1) // 2
    return list(ROWS[2 * (day % turns) :][:2]), day // turns % 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows, one after the other; 1 if one is red."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", choices=[*(row.name for row in ROWS), "list", []])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of files")
    parser.add_argument("--today", action="store_true", help="two rows, a third of the files")
    chosen = parser.parse_args(arguments)
    if "list" in chosen.rows:
        print(*(f"{row.name:14}{row.what}" for row in ROWS), sep="\n")
        return 0
    rows, part = [row for row in ROWS if row.name in chosen.rows or not chosen.rows], slice(None)
    if chosen.today:
        rows, third = todays()
        part = slice(third, None, 3)
    green = True
    for row in rows:
        files, began = files_of(row, chosen.only)[part], time.monotonic()
        if why := row.lacks() if files else "none of its files is chosen":
            passed, result, seconds = True, f"skipped: {why}", 0.0
        else:
            passed, text = run_row(row, files)
            result, seconds = f"{'green' if passed else 'RED'}: {text}", time.monotonic() - began
        green = green and passed
        print(f"{row.name:14}{result} ({seconds:.0f} s)", flush=True)
        if not chosen.only and not chosen.today:
            keep(row, result, seconds)
    return 0 if green else 1


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):  # then, too, what a row has started ends
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
