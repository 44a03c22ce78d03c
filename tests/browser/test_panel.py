"""The device panel and tables as a student sees them: live, replayed, narrow, in both themes.

LABKIT_SHOTS=FOLDER keeps pictures.
"""

from __future__ import annotations

import os
import statistics
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.views.panel_page import document, page
from tests.browser.lab import Lab
from tests.views.panel_recordings import made

ROOT = Path(__file__).parents[2]
# A cell that shows a panel and keeps the kernel busy with pure Python, while a thread sends ten
# samples a second, five at a time, as the sampler's reader does.
CELL = """
import sys, threading, time
sys.path.insert(0, {root!r})
from dataclasses import replace
from IPython.display import HTML, display
from labkit.views.live import Bridge
from labkit.views.panel_page import page
from tests.views.panel_recordings import made

whole = made(gpus=2, seconds=600)
(series,) = whole.series
began = time.monotonic()

def until_now():
    there = series.times <= time.monotonic() - began
    cut = replace(series, times=series.times[there], values=series.values[there])
    return replace(whole, series=(cut,), spans=whole.spans[:1], seconds=float(there.sum()) / 10)

bridge = Bridge("one", history=until_now)
display(HTML(page(None, key="one", live=True, alt="Two GPUs, live.", stamp="measured here")))
ended = threading.Event()

def line(row):
    numbers = [[None if x != x else float(x) for x in gpu] for gpu in series.values[row]]
    return [0, 0.1 * row, *numbers]

def feed():
    bridge.send(list(until_now().lines())[:2])
    for row in range(5, 6000, 5):
        if ended.wait(max(0.0, began + 0.1 * row - time.monotonic())):
            return
        bridge.send([line(row - back) for back in (4, 3, 2, 1, 0)])

threading.Thread(target=feed, daemon=True).start()
while time.monotonic() - began < {seconds}:
    sum(range(1000))
ended.set()
bridge.close("the block has ended")
"""
PANEL = "document.querySelector('.labkit-panel')"
PARTS = f"{PANEL}.shadowRoot"
# When something new was drawn, for four seconds: moments in milliseconds.
DRAWN = f"""async () => {{
  const stamps = [];
  const watching = new MutationObserver(() => stamps.push(performance.now()));
  watching.observe({PANEL}, {{ attributeFilter: ["data-updates"] }});
  await new Promise((done) => setTimeout(done, 4000));
  watching.disconnect();
  return stamps;
}}"""
# Frames while the view is dragged to and fro for three seconds.
DRAG = f"""async () => {{
  const plot = {PARTS}.querySelector('.plot');
  plot.setPointerCapture = () => {{}};
  const box = plot.getBoundingClientRect();
  const hand = (type, x) => plot.dispatchEvent(new PointerEvent(type, {{
    clientX: box.x + x, clientY: box.y + 60, button: 0, pointerId: 1, bubbles: true }}));
  hand('pointerdown', 300);
  const stamps = [];
  while (stamps.length < 180) {{
    stamps.push(await new Promise(requestAnimationFrame));
    hand('pointermove', 300 + 250 * Math.sin(stamps.length / 15));
  }}
  hand('pointerup', 310);
  return stamps.slice(1).map((one, i) => one - stamps[i]);
}}"""
# The names of metrics that a reader cannot see whole.
CUT = f"""() => [...{PARTS}.querySelectorAll('.what')].filter((one) => one.clientWidth === 0
  || one.scrollWidth > one.clientWidth || parseFloat(getComputedStyle(one).fontSize) < 10)
  .map((one) => one.textContent)"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("panel")) as lab:
        yield lab


def start(lab, name, seconds):
    """Open a notebook with a long text below the panel's cell, and run it."""
    cell = new_code_cell(CELL.format(root=str(ROOT), seconds=seconds))
    text = new_markdown_cell("\n\n".join(f"Line {n}" for n in range(150)))
    nbformat.write(new_notebook(cells=[cell, text]), lab.folder / f"{name}.ipynb")
    lab.open(f"{name}.ipynb")
    lab.page.evaluate("() => labkitPage.runAll()")
    lab.page.wait_for_selector(".labkit-panel", state="attached")


def text(lab, selector):
    return lab.page.locator(selector).first.inner_text().replace("\xa0", " ")


def keep_picture(lab, name):
    folder = os.environ.get("LABKIT_SHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        lab.page.screenshot(path=Path(folder) / name)


def open_file(lab, recording, tmp_path, name):
    lab.faults.clear()
    file = tmp_path / f"{name}.html"
    fragment = page(recording, key=name, live=False, alt=name, stamp=str(recording.kind))
    file.write_text(document(fragment, name), encoding="utf-8")
    lab.page.goto(file.as_uri())
    lab.page.wait_for_selector(".labkit-panel[data-opening]")


@pytest.mark.timeout(300)
def test_a_live_panel_lives_beside_a_busy_kernel_and_says_how_it_ended(opened):
    lab = opened
    start(lab, "live", 10)
    lab.page.wait_for_selector(".labkit-panel[data-state=live]")
    drawn = lab.page.evaluate(DRAWN)
    # Pure Python holds the GIL, and other tests may run: alone there are ten a second.
    assert len(drawn) / 4 >= 5
    assert statistics.median(after - before for before, after in pairwise(drawn)) > 50
    assert "%" in text(lab, ".value")

    # Its keys are its own: "0 0" would ask to restart the kernel.
    lab.page.locator(".plot").click(position={"x": 100, "y": 60})
    for key in ("0", "0", " "):
        lab.page.keyboard.press(key)
    lab.page.wait_for_selector(".labkit-panel[data-state=paused]")
    assert lab.page.locator(".jp-Dialog").count() == 0
    lab.page.keyboard.press("End")
    lab.page.wait_for_selector(".labkit-panel[data-state=live]")

    for theme in ("Dark", "Light"):
        lab.theme(f"JupyterLab {theme}")
        lab.page.locator(f".panel[data-theme={theme.lower()}]").wait_for()
        keep_picture(lab, f"panel-live-{theme.lower()}.png")

    lab.page.wait_for_selector(".labkit-panel[data-state=ended]", timeout=60_000)
    assert "ended: the block has ended" in text(lab, ".state")
    lab.page.wait_for_function("() => labkitPage.isDone()")
    assert lab.ask("faults") + lab.faults == []
    lab.close_notebook()


@pytest.mark.timeout(300)
def test_out_of_sight_while_its_cell_runs_it_shows_all_in_the_end(opened):
    lab = opened
    start(lab, "scrolled", 6)
    lab.page.wait_for_selector(".labkit-panel[data-state=live]")
    lab.page.get_by_text("Line 149", exact=True).scroll_into_view_if_needed()
    lab.page.wait_for_function("() => labkitPage.isDone()")
    lab.page.locator(".labkit-panel").scroll_into_view_if_needed()
    lab.page.wait_for_selector(".labkit-panel[data-state=ended]")
    stretch = lab.page.locator(".overview").get_attribute("aria-valuetext")
    whole = float(lab.page.locator(".overview").get_attribute("aria-valuemax"))
    assert whole > 5
    assert stretch.replace("\xa0", " ") == f"0.0 s to {whole:.1f} s"
    keep_picture(lab, "panel-scrolled.png")
    lab.close_notebook()


@pytest.mark.timeout(300)
def test_a_page_that_is_reloaded_while_the_cell_runs_has_the_past_when_the_kernel_is_idle(opened):
    lab = opened
    start(lab, "again", 7)
    lab.page.wait_for_selector(".labkit-panel[data-state=live]")
    lab.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    lab.page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")
    lab.page.goto(f"{lab.url}/lab/tree/again.ipynb?token={lab.token}&reset")
    lab.page.wait_for_function("() => labkitPage.isOpen()")
    lab.page.wait_for_selector(".labkit-panel[data-opening]")
    lab.page.wait_for_selector(".labkit-panel[data-state=ended]")
    assert "ended: the block has ended" in text(lab, ".state")
    # The first epoch is from before the reload: only the history knows of it.
    lab.page.locator(".plot").focus()
    lab.page.keyboard.press("]")
    lab.page.locator(".panel [aria-live]", has_text="epoch 1, 8.00").wait_for(state="attached")

    # Two views of a panel show the same.
    lab.page.evaluate(
        "() => { jupyterapp.shell.currentWidget.content.activeCellIndex = 0;"
        " jupyterapp.commands.execute('notebook:create-output-view'); }"
    )
    lab.page.wait_for_selector(".labkit-panel[data-opening] >> nth=1", state="attached")
    assert lab.faults == []
    lab.close_notebook()


@pytest.mark.timeout(300)
def test_a_panel_says_that_the_kernel_is_gone(opened):
    lab = opened
    start(lab, "restarted", 120)
    lab.page.wait_for_selector(".labkit-panel[data-state=live]")
    lab.page.evaluate(
        "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )
    lab.page.wait_for_selector(".labkit-panel[data-state=gone]")
    assert "the kernel is gone" in text(lab, ".state")
    keep_picture(lab, "panel-gone.png")
    lab.close_notebook()


TABLE = """
from labkit.views.table import table
from labkit.views.words import wrapped
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
  const found = [];
  for (const cell of numbers.querySelectorAll('td, th'))
    if (cell.clientHeight > 32) found.push(`broken: ${cell.textContent}`);
  const edge = (cell, side) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getBoundingClientRect()[side];
  };
  const [heads, cells] = [...numbers.rows].map((row) => [...row.cells]);
  heads.forEach((head, i) => {
    const side = i ? 'right' : 'left';
    if (Math.abs(edge(head, side) - edge(cells[i], side)) > 1)
      found.push(`beside: ${head.textContent}`);
  });
  const area = numbers.closest('.jp-OutputArea-output');
  if (area.scrollWidth > area.clientWidth) found.push('the output scrolls');
  if (numbers.offsetWidth > 620) found.push('the footnote has set the width');
  const lefts = [...prose.rows].map((row) => edge(row.cells[1], 'left'));
  if (Math.abs(lefts[0] - lefts[1]) > 1) found.push('prose is not to the left');
  return found;
}"""


@pytest.mark.timeout(120)
def test_tables_and_sentences_are_readable_in_a_wide_and_in_a_narrow_window(opened):
    lab = opened
    nbformat.write(new_notebook(cells=[new_code_cell(TABLE)]), lab.folder / "table.ipynb")
    lab.open("table.ipynb")
    assert lab.run_all(60)
    printed = lab.page.locator(".jp-OutputArea-output pre").last
    lines = printed.inner_text().strip().split("\n")
    assert printed.evaluate("(pre) => pre.clientHeight / 17") < len(lines) + 1
    for width in (1200, 700):
        lab.page.set_viewport_size({"width": width, "height": 1000})
        keep_picture(lab, f"table-{width}.png")
        assert lab.page.evaluate(FAULTS) == []
    lab.page.set_viewport_size({"width": 1200, "height": 1000})
    lab.close_notebook()


def test_a_recording_of_an_hour_opens_soon_and_moves_smoothly(opened, tmp_path):
    lab = opened
    open_file(lab, made(8, 3600), tmp_path, "hour")
    # Alone it is a second and sixty frames; here other tests may run beside this one.
    assert int(lab.page.locator(".labkit-panel").get_attribute("data-opening")) < 3000
    assert statistics.median(lab.page.evaluate(DRAG)) < 40
    keep_picture(lab, "panel-hour.png")
    assert lab.faults == []


def test_a_recording_can_be_read_with_the_keyboard_alone(opened, tmp_path):
    lab = opened
    open_file(lab, made(2, 60), tmp_path, "two")
    assert lab.page.locator(".panel").get_attribute("aria-label") == "two"
    lab.page.locator(".plot").focus()
    for key in ("Home", "ArrowRight"):
        lab.page.keyboard.press(key)
    aloud = lab.page.locator(".panel [aria-live]", has_text="At 0.")
    aloud.wait_for(state="attached")
    assert "GPU 0: utilisation" in aloud.inner_text()
    idle = text(lab, ".value")
    for _ in range(4):
        lab.page.keyboard.press("Shift+ArrowRight")
    lab.page.wait_for_function(
        f"(before) => {PARTS}.querySelector('.value').textContent !== before", arg=idle
    )
    # A metric that cannot be read says why, a device can be put away, and both by name.
    lab.page.get_by_role("button", name="SM activity").press("Enter")
    assert "This GPU does not tell it." in text(lab, ".says p")
    lab.page.locator(".devices summary").press("Enter")
    lab.page.get_by_role("checkbox", name="GPU 1").press("Space")
    lab.page.wait_for_function(f"() => {PARTS}.querySelectorAll('.strip').length === 1")
    assert lab.faults == []


@pytest.mark.parametrize("width", [700, 400])
def test_words_are_readable_in_every_scheme_and_on_paper(opened, tmp_path, width):
    lab = opened
    lab.page.set_viewport_size({"width": width, "height": 900})
    media = (("light", "none", "screen"), ("dark", "none", "screen"), ("dark", "active", "screen"))
    try:
        for scheme, forced, medium in (*media, ("dark", "none", "print")):
            lab.page.emulate_media(color_scheme=scheme, forced_colors=forced, media=medium)
            open_file(lab, made(2, 60), tmp_path, f"{scheme}-{forced}-{medium}")
            keep_picture(lab, f"panel-{width}-{scheme}-{forced}-{medium}.png")
            assert lab.page.evaluate(CONTRAST) == []
            assert lab.page.evaluate(CUT) == []
            assert lab.page.evaluate("() => document.documentElement.scrollWidth") <= width
    finally:
        lab.page.emulate_media(color_scheme="light", forced_colors="none", media="screen")
        lab.page.set_viewport_size({"width": 1200, "height": 1000})


# Words inside the panel whose colour is too near to the panel's own ground (WCAG 2.2, 1.4.3).
CONTRAST = """() => {
  const root = document.querySelector('.labkit-panel').shadowRoot;
  const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const light = (css) => {
    pen.fillStyle = css;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((v) => {
      const share = v / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(root.querySelector('.panel'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const words = walker.currentNode.textContent.trim();
    if (!words || !element.getClientRects().length || element.closest('.unseen, style')) continue;
    let ground = element;
    while (ground.parentElement && getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)')
      ground = ground.parentElement;
    const [a, b] = [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor]
      .map(light).sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${words}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""
