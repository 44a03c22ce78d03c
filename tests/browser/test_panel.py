"""The device panel and tables as a student sees them: live, replayed, narrow, in both themes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import labkit
from labkit.telemetry.page.panel_page import page
from labkit.views.embed import document
from tests.cluster.test_links import needs_links
from tests.telemetry.panel_recordings import made

ROOT = Path(__file__).parents[2]
# A cell that shows a panel and keeps the kernel busy with pure Python, while a thread sends ten
# samples a second, five at a time, as the sampler's reader does.
CELL = """
import sys, tempfile, threading, time
from contextlib import suppress
sys.path.insert(0, {root!r})
from dataclasses import replace
from IPython.display import HTML, display
from labkit.telemetry.page.bridge import Bridge
from labkit.telemetry.page.panel_page import packed, page
from tests.telemetry.panel_recordings import made

whole = made(gpus=2, seconds=600)
(series,) = whole.series
with tempfile.TemporaryDirectory() as folder:
    replace(whole, states=(), spans=()).save(f"{{folder}}/rows")
    rows = open(f"{{folder}}/rows").read().splitlines()
began = time.monotonic()

def until_now():
    there = series.times <= time.monotonic() - began
    cut = replace(series, times=series.times[there], values=series.values[there])
    past = replace(whole, series=(cut,), spans=whole.spans[:1], seconds=float(there.sum()) / 10)
    return packed(past)

bridge = Bridge("one", history=until_now)
display(HTML(page(None, key="one", alt="Two GPUs, live.",
                  stamp="measured here", title="Two waves", address=bridge.address)))
ended = threading.Event()

def feed():
    bridge.send(",".join(rows[:2]))
    for last in range(7, 6000, 5):
        if ended.wait(max(0.0, began + 0.1 * (last - 2) - time.monotonic())):
            return
        bridge.send(",".join(rows[last - 5 : last]))

threading.Thread(target=feed, daemon=True).start()
with suppress(KeyboardInterrupt):
    while time.monotonic() - began < {seconds}:
        sum(range(1000))
ended.set()
bridge.close("the block has ended")
"""
VALUE = ".row.gpu .value"
PARTS = "document.querySelector('.labkit-panel').shadowRoot"
# The names of metrics that a reader cannot see whole.
CUT = f"""() => [...{PARTS}.querySelectorAll('.what')].filter((one) => one.clientWidth === 0
  || one.scrollWidth > one.clientWidth || parseFloat(getComputedStyle(one).fontSize) < 10)
  .map((one) => one.textContent)"""
# Words inside the panel whose colour is too near to the panel's own ground.
CONTRAST = """() => labkitPage.contrastIn(
  document.querySelector('.labkit-panel').shadowRoot.querySelector('.panel'))"""


def start(lab, name, seconds):
    """Open a notebook with a long text below the panel's cell, and run it."""
    cell = new_code_cell(CELL.format(root=str(ROOT), seconds=seconds))
    text = new_markdown_cell("\n\n".join(f"Line {n}" for n in range(150)))
    nbformat.write(new_notebook(cells=[cell, text]), lab.folder / f"{name}.ipynb")
    lab.open(f"{name}.ipynb")
    lab.page.evaluate("() => labkitPage.runAll()")
    until(lab, "live")


def until(lab, state):
    lab.page.wait_for_selector(f".labkit-panel[data-state={state}]")


def text(lab, selector):
    return lab.page.locator(selector).first.inner_text().replace("\xa0", " ")


def open_file(lab, recording, folder):
    lab.faults.clear()
    fragment = page(recording, key="k", alt="GPUs.", stamp="measured", title="GPUs")
    (folder / "panel.html").write_text(document(fragment, "A panel"), encoding="utf-8")
    lab.page.goto((folder / "panel.html").as_uri())
    lab.page.wait_for_selector(".labkit-panel[data-opening]")


@pytest.mark.timeout(300)
def test_a_live_panel_lives_beside_a_busy_kernel_and_says_how_it_ended(lab):
    start(lab, "live", 10)
    # It goes on being drawn, more often than messages come, although pure Python holds the GIL.
    lab.page.wait_for_function(
        "() => document.querySelector('.labkit-panel').dataset.updates >= 20"
    )
    assert "%" in text(lab, VALUE)
    tops = lab.page.locator(".tops > span").all_inner_texts()
    assert tops == 2 * ["100\xa0%", "141\xa0GB", "700\xa0W"]  # rows go on where the past ended
    assert text(lab, ".panel h3") == "Two waves"

    # Its keys are its own: "0 0" would ask to restart the kernel.
    lab.page.locator(".plot").click(position={"x": 100, "y": 60})
    for key in ("0", "0", " "):
        lab.page.keyboard.press(key)
    until(lab, "paused")
    assert lab.page.locator(".jp-Dialog").count() == 0
    lab.page.keyboard.press("End")
    until(lab, "live")

    for theme in ("Dark", "Light"):
        lab.theme(f"JupyterLab {theme}")
        lab.page.locator(f".panel[data-theme={theme.lower()}]").wait_for()

    until(lab, "ended")
    assert "ended: the block has ended" in text(lab, ".state")
    lab.page.wait_for_function("() => labkitPage.isDone()")
    assert lab.ask("faults") + lab.faults == []
    lab.close_notebook()


@pytest.mark.timeout(300)
def test_out_of_sight_while_its_cell_runs_it_shows_all_in_the_end(lab):
    start(lab, "scrolled", 6)
    lab.page.get_by_text("Line 149", exact=True).scroll_into_view_if_needed()
    lab.page.wait_for_function("() => labkitPage.isDone()")
    lab.page.locator(".labkit-panel").scroll_into_view_if_needed()
    until(lab, "ended")
    whole = text(lab, ".length").removesuffix(" recorded")
    assert float(whole.removesuffix(" s")) > 5
    stretch = lab.page.locator(".plot").get_attribute("aria-label").replace("\xa0", " ")
    assert stretch == f"time line, 0.0 s to {whole}"
    lab.close_notebook()


@pytest.mark.timeout(300)
def test_a_page_that_is_reloaded_while_the_cell_runs_has_the_past_at_once(lab):
    start(lab, "again", 200)
    lab.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    lab.page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")
    lab.page.goto(f"{lab.url}/lab/tree/again.ipynb?token={lab.token}&reset")
    lab.page.wait_for_function("() => labkitPage.isOpen()")
    until(lab, "live")
    # The first seconds are from before the reload: only the history knows of them.
    lab.page.locator(".plot").focus()
    lab.page.keyboard.press("Home")
    aloud = lab.page.locator(".panel [aria-live]", has_text="At 0.0 s. GPU 0: utilisation")
    aloud.wait_for(state="attached")
    assert "–" not in aloud.inner_text()
    until(lab, "live")
    kernel = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"
    lab.page.evaluate(f"() => {kernel}.interrupt()")
    until(lab, "ended")
    assert "ended: the block has ended" in text(lab, ".state")

    # Two views of a panel show the same.
    lab.page.evaluate(
        "() => { jupyterapp.shell.currentWidget.content.activeCellIndex = 0;"
        " jupyterapp.commands.execute('notebook:create-output-view'); }"
    )
    lab.page.wait_for_selector(".labkit-panel[data-opening] >> nth=1", state="attached")
    assert lab.faults == []
    lab.close_notebook()


@pytest.mark.timeout(300)
def test_a_panel_says_that_the_kernel_is_gone(lab):
    start(lab, "restarted", 120)
    lab.page.evaluate(
        "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )
    until(lab, "gone")
    assert "the kernel is gone" in text(lab, ".state")
    lab.close_notebook()


AGAIN = """
import secrets
from IPython.display import HTML, display
from labkit.telemetry.page.panel_page import page
display(HTML(page(None, key=secrets.token_hex(), alt="", stamp="")))
"""
# The timers of panels.
TIMERS = """() => {
  const [set, clear] = [setInterval, clearInterval];
  window.ticking = new Set();
  window.setInterval = (act, ms, id = set(act, ms)) => (ms === 200 && ticking.add(id), id);
  window.clearInterval = (id) => clear(id, ticking.delete(id));
}"""


@pytest.mark.timeout(300)
def test_a_cell_that_runs_again_leaves_nothing_of_the_panel_before(lab):
    nbformat.write(new_notebook(cells=[new_code_cell(AGAIN)]), lab.folder / "twice.ipynb")
    lab.open("twice.ipynb")
    lab.page.evaluate(TIMERS)
    for _ in range(3):
        assert lab.run_all(60)
        until(lab, "waiting")
    ticking = "() => ticking.size"
    assert lab.page.evaluate(ticking) == 1
    moved = """() => {
      const host = document.querySelector('.labkit-panel'), cell = host.parentNode;
      host.remove();
      const none = ticking.size;
      cell.append(host);
      return [none, ticking.size];
    }"""
    assert lab.page.evaluate(moved) == [0, 1]
    lab.page.evaluate("() => jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    lab.page.wait_for_function("() => !window[Symbol.for('labkit.panels')].size")
    assert lab.page.evaluate(ticking) == 0
    assert lab.faults == []
    lab.close_notebook()


TABLE = """
from labkit.kinds import wrapped
from labkit.views.table import table
from IPython.display import HTML, display
note = "This footnote is much longer than the table above it is wide, and it wraps. " * 3
rows = [[f"epoch {n}", "12.3 s", "1,980 images/s", "95 %", "41.3 GB", "9.95 kJ"] for n in range(3)]
head = ("span", "time", "throughput", "utilisation", "peak memory", "energy")
display(HTML(table(head, rows, "What each span used", note)))
display(HTML(table(("defect", "why"), [["a", note]], prose=True)))
print(wrapped(note))
"""
# Cells in more than one line, heads beside their columns, and what is wider than the window.
FAULTS = """() => {
  const [numbers, prose] = document.querySelectorAll('.labkit table');
  const edge = (cell, side) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getBoundingClientRect()[side];
  };
  const apart = (one, other, side) => Math.abs(edge(one, side) - edge(other, side)) > 1;
  const found = [...numbers.querySelectorAll('tbody > tr > *')]
    .filter((cell) => cell.clientHeight > 32).map((cell) => `broken: ${cell.textContent}`);
  const [heads, cells] = [...numbers.rows].map((row) => [...row.cells]);
  heads.forEach((head, i) => {
    if (apart(head, cells[i], i ? 'right' : 'left')) found.push(`beside: ${head.textContent}`);
  });
  const area = numbers.closest('.jp-OutputArea-output');
  if (area.scrollWidth > area.clientWidth) found.push('the output scrolls');
  if (numbers.offsetWidth > 620) found.push('the footnote has set the width');
  if (apart(prose.rows[0].cells[1], prose.rows[1].cells[1], 'left')) found.push('prose');
  return found;
}"""


@pytest.mark.timeout(120)
def test_tables_and_sentences_are_readable_in_a_wide_and_in_a_narrow_window(lab):
    nbformat.write(new_notebook(cells=[new_code_cell(TABLE)]), lab.folder / "table.ipynb")
    lab.open("table.ipynb")
    assert lab.run_all(60)
    printed = lab.page.locator(".jp-OutputArea-output pre").last
    lines = printed.inner_text().strip().split("\n")
    assert printed.evaluate("(pre) => pre.clientHeight / 17") < len(lines) + 1
    for width in (700, 1200):
        lab.page.set_viewport_size({"width": width, "height": 1000})
        assert lab.page.evaluate(FAULTS) == []
    lab.close_notebook()


def test_a_recording_can_be_read_with_the_keyboard_alone(lab, tmp_path):
    open_file(lab, made(2, 60), tmp_path)
    assert lab.page.locator(".panel").get_attribute("aria-label") == "GPUs."
    lab.page.locator(".plot").focus()
    for key in ("Home", "ArrowRight"):
        lab.page.keyboard.press(key)
    aloud = lab.page.locator(".panel [aria-live]", has_text="At 0.")
    aloud.wait_for(state="attached")
    assert "GPU 0: utilisation" in aloud.inner_text()
    idle = text(lab, VALUE)
    for _ in range(4):
        lab.page.keyboard.press("Shift+ArrowRight")
    lab.page.wait_for_function(
        f"(before) => {PARTS}.querySelector('{VALUE}').textContent !== before", arg=idle
    )
    # A metric that cannot be read says why.
    lab.page.get_by_role("button", name="SM activity").press("Enter")
    assert "This GPU does not tell it." in text(lab, ".says p")
    assert lab.faults == []


# Labels that reach into one another.
OVERLAPS = f"""() => {{
  const nodes = [...{PARTS}.querySelectorAll('.fold, .labels .value, .mark, .watts')]
    .filter((one) => one.textContent && one.clientWidth);
  const boxes = nodes.map((one) => one.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  return boxes.flatMap((a, i) => boxes.flatMap((b, j) => (i < j && meet(a, b)
    ? [`${{nodes[i].textContent}} | ${{nodes[j].textContent}}`] : [])));
}}"""


@pytest.mark.parametrize("gpus", [2, 8, 64])
@pytest.mark.parametrize("width", [1366, 700, 400])
def test_words_are_readable_in_both_schemes_and_on_paper(lab, tmp_path, width, gpus):
    lab.page.set_viewport_size({"width": width, "height": 900})
    for scheme, medium in (("light", "screen"), ("dark", "screen"), ("dark", "print")):
        lab.page.emulate_media(color_scheme=scheme, media=medium)
        open_file(lab, made(gpus, 60), tmp_path)
        assert lab.page.evaluate(CONTRAST) == []
        assert lab.page.evaluate(OVERLAPS) == []
        assert lab.page.evaluate(CUT) == []
        assert lab.page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_a_recording_plays_to_its_end(lab, tmp_path):
    open_file(lab, made(1, 2), tmp_path)
    lab.page.get_by_role("button", name="Play").click()
    lab.page.get_by_role("button", name="Pause").wait_for()
    lab.page.locator(".moment", has_text="at").wait_for()
    lab.page.get_by_role("button", name="Play").wait_for()


EIGHT = ROOT / "notebooks" / "recordings" / "modelled_eight_gpus.jsonl"


def test_eight_gpus_fit_a_projector_and_one_of_them_is_marked_and_unfolds(lab, tmp_path):
    recording = labkit.replay(EIGHT)
    (series,) = recording.series  # with a quote in the name, as in a file's
    series = replace(series, devices=tuple(replace(d, key=f'"/{d.key}') for d in series.devices))
    open_file(lab, replace(recording, series=(series,)), tmp_path)
    height = f"() => {PARTS}.querySelector('.panel').offsetHeight"
    assert lab.page.evaluate(height) <= 600
    (mark,) = (one for one in lab.page.locator(".mark").all_inner_texts() if one)
    assert mark.startswith("slow clock: 1,3")
    fold = lab.page.get_by_role("button", name="GPU 5")
    fold.press("Enter")
    lab.page.locator(".fold[aria-expanded=true]").wait_for()
    assert lab.page.locator(".row.gpu .what").all_inner_texts() == [
        "utilisation",
        "memory",
        "power",
    ]
    lab.page.keyboard.press("Enter")  # the focus has stayed
    lab.page.locator(".fold[aria-expanded=true]").wait_for(state="detached")
    lab.page.get_by_role("button", name="A+").click()
    lab.page.wait_for_function(
        f"() => getComputedStyle({PARTS}.querySelector('.value')).fontSize >= '17px'"
    )
    assert lab.faults == []


LINKS = """import sys
sys.path.insert(0, {root!r})
import numpy as np
import labkit
from labkit.collectives import programs

def program(rank):
    for _ in range(6):
        programs.ring_all_reduce(labkit.cluster.communicator(), np.zeros(250_000, np.float32))

with labkit.cluster(ranks=3, link="20 Mbit/s") as c:
    c.panel()
    c.run(program)
"""


@pytest.mark.timeout(300)
@needs_links
def test_links_fill_while_ranks_run_and_can_be_played_afterwards(lab):
    cell = new_code_cell(LINKS.format(root=str(ROOT)))
    nbformat.write(new_notebook(cells=[cell]), lab.folder / "links.ipynb")
    lab.open("links.ipynb")
    lab.page.evaluate("() => labkitPage.runAll()")
    says = """(words) => document.querySelector('.labkit-traffic')?.shadowRoot
      ?.querySelector('.says')?.textContent.includes(words)"""
    lab.page.wait_for_function(says, arg="the link from host")
    assert not lab.page.evaluate("() => labkitPage.isDone()")
    lab.page.wait_for_function("() => labkitPage.isDone()")
    lab.page.wait_for_function(says, arg="the link from host")  # it opens at its busiest moment
    lab.page.locator(".traffic").focus()
    lab.page.keyboard.press("Home")
    lab.page.wait_for_function(says, arg="no link carries data")
    for theme in ("Dark", "Light"):
        lab.theme(f"JupyterLab {theme}")
        lab.page.locator(f".traffic[data-theme={theme.lower()}]").wait_for()
    assert lab.ask("faults") + lab.faults == []
    lab.close_notebook()
