"""The animation of a run, beside matplotlib's `to_jshtml`: how soon it is seen, how large it is.

Both show the same all-reduce of 8 ranks in a ring. matplotlib draws 113 pictures (8 for each of the
14 steps) before the first can be seen; labkit sends what happened, and the browser draws. Each is
made in a fresh process, its imports included, in an order drawn anew; then, where there is a
Chromium, put into a page that is open, as a notebook does, until its first picture is there.

The promises: first picture at least 50 times sooner, output at least 20 times smaller, and sixty
frames a second while 8 and 64 ranks play (a ratio of 1: the page gets every frame that the browser
has; software rendering, where there is no graphics card, is the harder case).
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import Row, main

from labkit import collectives

ROOT = Path(__file__).resolve().parent.parent
RING = Path(__file__).resolve().parent / "player_parts" / "ring.py"
MAKERS = ("labkit", "matplotlib")
PEER = "matplotlib to_jshtml"
SIXTY = 60.0
# Milliseconds from an output's arrival to the frame in which its first picture can be seen. In
# labkit's there is one, until the animation has taken its place.
SEE = """async (html) => {
  const began = performance.now();
  document.body.append(document.createRange().createContextualFragment(html));
  const seen = () => document.querySelector('img')?.naturalWidth > 0
    || document.querySelector('.labkit-player[data-opening]');
  do await new Promise(requestAnimationFrame); while (!seen());
  return performance.now() - began;
}"""
# Stamps of frames while it plays.
PLAY = """async (count) => {
  const root = document.querySelector('.labkit-player').shadowRoot;
  root.querySelector('.play').click();
  const stamps = [];
  while (stamps.length < count) stamps.push(await new Promise(requestAnimationFrame));
  return stamps;
}"""


@contextmanager
def browser() -> Iterator[Any | None]:
    """A headless Chromium, or None with a sentence that says why not."""
    sys.path.insert(0, str(ROOT))
    try:
        from playwright.sync_api import sync_playwright

        from tests.browser.lab import SWITCHES, chromium
    except ImportError as fault:
        print(f"Nothing is opened in a browser: {fault}. `make setup-test` installs what it needs.")
        yield None
        return
    if chromium() is None:
        print("Nothing is opened in a browser: there is no Chromium here.")
        yield None
        return
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium(), headless=True, args=SWITCHES)
        try:
            yield opened
        finally:
            opened.close()


def made(maker: str, file: Path) -> float:
    """Seconds from a finished run to the written page."""
    # pip has compiled matplotlib once and for all; nor may labkit be compiled in every process.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    answer = subprocess.run(
        [sys.executable, RING, maker, file], capture_output=True, text=True, cwd=ROOT, timeout=300,
        env=environment,
    )  # fmt: skip
    if answer.returncode:
        raise SystemExit(f"{maker} failed:\n{answer.stderr[-2000:]}")
    return float(answer.stdout)


def seen(opened: Any, file: Path) -> float:
    """Seconds from the output's arrival in a page to its first picture. A CDN is not there."""
    page = opened.new_page(viewport={"width": 1200, "height": 900})
    page.route("http*://**", lambda route: route.abort())
    found = page.evaluate(SEE, file.read_text(encoding="utf-8"))
    page.close()
    return float(found) / 1000


def frames(opened: Any, ranks: int, folder: Path, count: int) -> list[float]:
    """Frames a second while a ring of so many ranks plays, in stretches of half a second."""
    trace = collectives.run(collectives.programs.ring_all_reduce, ranks=ranks)
    page = opened.new_page(viewport={"width": 1200, "height": 900})
    page.goto(trace.player().save(folder / f"{ranks}.html").as_uri())
    page.wait_for_selector(".labkit-player[data-opening]")
    stamps = page.evaluate(PLAY, count)
    page.close()
    return [30_000 / (b - a) for a, b in zip(stamps[::30], stamps[30::30], strict=False)]


def results(quick: bool) -> list[Row]:
    """Rows for the table."""
    rounds = 2 if quick else 7
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, browser() as opened:
        folder = Path(name)
        times: dict[str, list[float]] = {maker: [] for maker in MAKERS}
        to_see: dict[str, list[float]] = {maker: [] for maker in MAKERS}
        files = {maker: folder / f"{maker}.html" for maker in MAKERS}
        made("labkit", files["labkit"])  # compiled now, where it has not been
        if opened:
            seen(opened, files["labkit"])  # the first page of a browser is slow, whosever it is
        for number in range(rounds):
            for maker in random.sample(MAKERS, len(MAKERS)):
                times[maker].append(made(maker, files[maker]))
                to_see[maker].append(seen(opened, files[maker]) if opened else 0.0)
            ours, theirs = (f"{times[m][-1]:.3f} + {to_see[m][-1]:.3f} s" for m in MAKERS)
            print(
                f"round {number + 1}: labkit {ours}, matplotlib {theirs} (made + seen)", flush=True
            )
        rows.append(_row("first picture made", times))
        if opened:
            whole = {m: [a + b for a, b in zip(times[m], to_see[m], strict=True)] for m in MAKERS}
            rows.append(_row("first picture seen in Chromium", whole))
        sizes = {maker: files[maker].stat().st_size for maker in MAKERS}
        print(f"size: labkit {sizes['labkit']:,} B, matplotlib {sizes['matplotlib']:,} B")
        ratio = sizes["matplotlib"] / sizes["labkit"]
        rows.append(Row("size of the output", PEER, ratio, ratio, ratio))
        for ranks in (8, 64) if opened else ():
            rates = frames(opened, ranks, folder, 121 if quick else 601)
            middle = statistics.median(rates)
            print(f"{ranks} ranks: {middle:.1f} frames a second, at least {min(rates):.1f}")
            rows.append(
                Row(
                    f"frames a second, {ranks} ranks", "60", middle / SIXTY,
                    min(rates) / SIXTY, max(rates) / SIXTY,
                )
            )  # fmt: skip
    return rows


def _row(what: str, times: dict[str, list[float]]) -> Row:
    """The ratio of the medians, and the least and the most that any round showed."""
    ratios = [b / a for a, b in zip(times["labkit"], times["matplotlib"], strict=True)]
    middle = statistics.median(times["matplotlib"]) / statistics.median(times["labkit"])
    return Row(what, PEER, middle, min(ratios), max(ratios))


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
