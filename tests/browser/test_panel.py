"""The device panel as a student sees it: live beside a busy kernel, replayed, in both themes.

LABKIT_SHOTS=FOLDER keeps pictures.
"""

from __future__ import annotations

import os
import statistics
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit.views.panel_page import document, page
from tests.browser.lab import Lab
from tests.views.panel_recordings import made

ROOT = Path(__file__).parents[2]
# A thread that sends ten rows a second, two at a time (the sampler's reader: five); then a cell
# that keeps the kernel busy with pure Python.
LIVE = [
    new_code_cell(f"""
import json, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
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
bridge.send([list(until_now().lines())[0], list(until_now().lines())[1]])
ended = threading.Event()

def feed():
    for row in range(2, 6000, 2):
        if ended.wait(max(0.0, began + 0.1 * row - time.monotonic())):
            return
        bridge.send([line(row - 1), line(row)])

def line(row):
    numbers = [[None if x != x else float(x) for x in gpu] for gpu in series.values[row]]
    return [0, 0.1 * row, *numbers]

threading.Thread(target=feed, daemon=True).start()
"""),
    new_code_cell("""
end = time.monotonic() + 12
while time.monotonic() < end:
    sum(range(1000))
print(bridge.fault)
"""),
    new_code_cell("ended.set(); bridge.close('stopped'); print('closed')"),
]
PANEL = "document.querySelector('.labkit-panel')"
UPDATES = f"() => Number({PANEL}.dataset.updates)"
MESSAGES = "() => [...window[Symbol.for('labkit.panels')].values()][0].number"
# When something new was drawn, for five seconds: moments in milliseconds.
DRAWN = f"""async () => {{
  const panel = {PANEL};
  const stamps = [];
  let last = panel.dataset.updates;
  const watching = new MutationObserver(() => {{
    if (panel.dataset.updates !== last) stamps.push(performance.now());
    last = panel.dataset.updates;
  }});
  watching.observe(panel, {{ attributeFilter: ["data-updates"] }});
  await new Promise((done) => setTimeout(done, 5000));
  watching.disconnect();
  return stamps;
}}"""
# Frames while the view is dragged to and fro for three seconds.
DRAG = """async () => {
  const plot = document.querySelector('.labkit-panel').shadowRoot.querySelector('.plot');
  plot.setPointerCapture = () => {};
  const box = plot.getBoundingClientRect();
  const hand = (type, x) => plot.dispatchEvent(new PointerEvent(type, {
    clientX: box.x + x, clientY: box.y + 60, button: 0, pointerId: 1, bubbles: true }));
  hand('pointerdown', 300);
  const stamps = [];
  while (stamps.length < 180) {
    stamps.push(await new Promise(requestAnimationFrame));
    hand('pointermove', 300 + 250 * Math.sin(stamps.length / 15));
  }
  hand('pointerup', 310);
  return stamps.slice(1).map((one, i) => one - stamps[i]);
}"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("panel")
    nbformat.write(new_notebook(cells=LIVE), folder / "live.ipynb")
    with Lab(folder) as lab:
        yield lab


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
def test_a_live_panel_lives_beside_a_busy_kernel(opened):
    lab = opened
    lab.open("live.ipynb")
    lab.page.evaluate("() => labkitPage.runAll()")
    lab.page.wait_for_selector(".labkit-panel[data-state=live]")
    # Pure Python holds the GIL: the issue promises eight a second, on a machine of its own. Two
    # looks come together and are drawn one after the other.
    messages = lab.page.evaluate(MESSAGES)
    drawn = lab.page.evaluate(DRAWN)
    messages = lab.page.evaluate(MESSAGES) - messages
    assert "*" in lab.page.locator(".jp-CodeCell .jp-InputPrompt").nth(1).inner_text()
    assert len(drawn) / 5 >= 5
    assert len(drawn) > 1.2 * messages
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

    # The theme of the page is its own at once.
    for theme in ("Dark", "Light"):
        lab.theme(f"JupyterLab {theme}")
        lab.page.locator(f".panel[data-theme={theme.lower()}]").wait_for()
        keep_picture(lab, f"panel-live-{theme.lower()}.png")

    # All cells run; the bridge is closed and says so.
    lab.page.wait_for_selector(".labkit-panel[data-state=ended]", timeout=60_000)
    assert "ended: stopped" in text(lab, ".state")
    lab.page.wait_for_function("() => labkitPage.isDone()")
    assert lab.ask("faults") == []
    assert lab.faults == []


@pytest.mark.timeout(300)
def test_a_page_that_is_opened_anew_has_the_past_and_goes_on(opened):
    lab = opened
    nbformat.write(new_notebook(cells=LIVE[:1]), lab.folder / "again.ipynb")
    lab.open("again.ipynb")
    assert lab.run_all(60)
    lab.page.wait_for_function(f"() => Number({PANEL}?.dataset.updates) > 20")
    lab.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    lab.page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")
    lab.page.goto(f"{lab.url}/lab/tree/again.ipynb?token={lab.token}&reset")
    lab.page.wait_for_function("() => labkitPage.isOpen()")
    lab.page.wait_for_selector(".labkit-panel[data-state=live]")
    # The first epoch is from before: only the history knows of it.
    lab.page.locator(".plot").focus()
    lab.page.keyboard.press("]")
    lab.page.locator(".panel [aria-live]", has_text="epoch 1, 8.00").wait_for(state="attached")
    # A second view of the same panel lives as well.
    lab.page.evaluate(
        "() => { jupyterapp.shell.currentWidget.content.activeCellIndex = 0;"
        " jupyterapp.commands.execute('notebook:create-output-view'); }"
    )
    # The first may be out of sight now, and then it does not draw.
    lab.page.wait_for_function(
        "() => Number(document.querySelectorAll('.labkit-panel')[1]?.dataset.updates) > 5"
    )
    assert lab.faults == []
    lab.close_notebook()


def test_a_recording_of_an_hour_opens_soon_and_moves_smoothly(opened, tmp_path):
    lab = opened
    open_file(lab, made(8, 3600), tmp_path, "hour")
    # The issue promises a second and sixty frames; here other tests may run beside this one.
    assert int(lab.page.locator(".labkit-panel").get_attribute("data-opening")) < 3000
    frames = lab.page.evaluate(DRAG)
    assert statistics.median(frames) < 40
    keep_picture(lab, "panel-hour.png")
    assert lab.faults == []


def test_a_recording_can_be_read_with_the_keyboard_alone(opened, tmp_path):
    lab = opened
    open_file(lab, made(2, 60), tmp_path, "two")
    values = lambda: [one.inner_text() for one in lab.page.locator(".value").all()]  # noqa: E731
    assert lab.page.locator(".panel").get_attribute("aria-label") == "two"
    lab.page.locator(".plot").focus()
    for key in ("Home", "ArrowRight"):
        lab.page.keyboard.press(key)
    said = lab.page.locator(".panel [aria-live]", has_text="At 0.")
    said.wait_for(state="attached")
    assert "GPU 0: utilisation" in said.inner_text()
    idle = values()
    for _ in range(4):
        lab.page.keyboard.press("Shift+ArrowRight")
    lab.page.wait_for_function(
        "(before) => document.querySelector('.labkit-panel').shadowRoot"
        ".querySelector('.value').textContent !== before",
        arg=idle[0],
    )
    # A metric that cannot be read says why, a device can be put away, and both by name.
    lab.page.get_by_role("button", name="SM activity").press("Enter")
    assert "This GPU does not tell it." in text(lab, ".says p")
    lab.page.locator(".devices summary").press("Enter")
    lab.page.get_by_role("checkbox", name="GPU 1").press("Space")
    lab.page.wait_for_function(
        "() => document.querySelector('.labkit-panel').shadowRoot"
        ".querySelectorAll('.strip').length === 1"
    )
    assert lab.faults == []


def test_words_are_readable_in_every_scheme(opened, tmp_path):
    lab = opened
    lab.page.set_viewport_size({"width": 620, "height": 900})
    try:
        for scheme, forced in (("light", "none"), ("dark", "none"), ("dark", "active")):
            lab.page.emulate_media(color_scheme=scheme, forced_colors=forced)
            open_file(lab, made(2, 60), tmp_path, f"{scheme}-{forced}")
            keep_picture(lab, f"panel-narrow-{scheme}-{forced}.png")
            assert lab.page.evaluate(CONTRAST) == []
            assert lab.page.evaluate("() => document.documentElement.scrollWidth") <= 620
    finally:
        lab.page.emulate_media(color_scheme="light", forced_colors="none")
        lab.page.set_viewport_size({"width": 1200, "height": 1000})


# Words inside the panel whose colour is too near to the panel's own ground (WCAG 2.2, 1.4.3).
CONTRAST = """() => {
  const root = document.querySelector('.labkit-panel').shadowRoot;
  const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const light = (css, under) => {
    for (const one of [under ?? css, css]) { pen.fillStyle = one; pen.fillRect(0, 0, 1, 1); }
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
    if (getComputedStyle(element).fontSize === '0px') continue;
    let ground = element;
    while (ground.parentElement && getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)')
      ground = ground.parentElement;
    const [a, b] = [light(getComputedStyle(element).color),
      light(getComputedStyle(ground).backgroundColor)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${words}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""
