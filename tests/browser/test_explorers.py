"""Explorers and the pipeline's player as a student uses them, in both themes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import labkit
from labkit import pipelines, updates
from tests.browser.test_panel import CONTRAST as OF_PANEL
from tests.views.test_pages import EXPLORERS


def open_page(lab, view, player, tmp_path):
    lab.faults.clear()
    lab.page.set_viewport_size({"width": 1366, "height": 768})
    lab.page.goto(player.save(tmp_path / "page.html").as_uri())
    lab.page.wait_for_selector(f".labkit-{view}[data-state=ready]")


def unreadable(lab, view):
    """Words with too little contrast, in both themes, on a narrow page that must not scroll."""
    found = []
    lab.page.set_viewport_size({"width": 620, "height": 900})
    for scheme in ("dark", "light"):
        lab.page.emulate_media(color_scheme=scheme)
        lab.page.locator(f".{view}[data-theme={scheme}]").wait_for()
        found += lab.page.evaluate(
            OF_PANEL.replace("labkit-panel", f"labkit-{view}").replace("'.panel'", f"'.{view}'")
        )
        assert lab.page.evaluate("() => document.documentElement.scrollWidth") <= 620
    lab.page.set_viewport_size({"width": 1366, "height": 768})
    return found


@pytest.mark.parametrize("name", EXPLORERS)
def test_an_explorer_answers_to_the_keyboard_and_can_be_read(lab, tmp_path, name):
    open_page(lab, "explorer", labkit.explore(name), tmp_path)
    says, first = lab.page.locator(".says"), lab.page.locator(".explorer input").first
    before = says.inner_text()
    first.focus()
    lab.page.keyboard.press("ArrowRight")
    lab.page.wait_for_function(
        "([node, text]) => node.innerText !== text", arg=[says.element_handle(), before]
    )
    assert unreadable(lab, "explorer") == []
    lab.page.emulate_media(media="print")
    assert not first.is_visible()
    assert lab.page.locator(".explorer canvas").is_visible()
    assert lab.faults == []


OVERLAPS = (Path(__file__).parent / "overlaps.js").read_text(encoding="utf-8")
VIEWS = {name: partial(labkit.explore, name) for name in EXPLORERS} | {
    "server": updates.parameter_server,
    "pipeline": lambda: pipelines.schedule("1f1b", stages=4, micro_batches=8).timeline().player(),
    "rank": lambda: pipelines.schedule("gpipe", stages=1, micro_batches=1).timeline().player(),
}
# Each slider at both its ends and in the middle, each choice once; and then each moment.
EACH = """async () => {
  const root = document.querySelector("[data-labkit]").shadowRoot;
  const drawn = () => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
  const found = new Set(labkitOverlaps());
  for (const one of root.querySelectorAll("input, select")) {
    const key = one.localName === "select" ? "selectedIndex" : "value";
    const [before, most] = [one[key], key === "value" ? one.max : one.options.length - 1];
    for (const share of [0, 0.5, 0.7, 1, null]) {
      one[key] = share === null ? before : Math.round(share * most);
      for (const type of ["input", "change"]) one.dispatchEvent(new Event(type, { bubbles: true }));
      await drawn();
      for (const fault of labkitOverlaps()) found.add(fault);
    }
  }
  return [...found];
}"""


@pytest.mark.parametrize("name", VIEWS)
def test_words_stand_apart_from_each_other_and_from_lines(lab, tmp_path, name):
    page = VIEWS[name]().save(tmp_path / "page.html")
    page.write_text(page.read_text().replace("<body>", f"<body><script>{OVERLAPS}</script>"))
    for width, height in ((1366, 768), (768, 900)):
        lab.page.set_viewport_size({"width": width, "height": height})
        lab.page.goto(page.as_uri())
        lab.page.wait_for_selector("[data-labkit][data-state=ready]")
        assert lab.page.evaluate(EACH) == []


WATCH = """() => {
  const write = CanvasRenderingContext2D.prototype.fillText;
  window.written = {};  // where each text ends, as a share of the width
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    written[text] = (x + this.measureText(text).width) / this.canvas.clientWidth;
    return write.call(this, text, x, y);
  };
}"""


def test_the_key_of_the_memory_has_room_for_every_part(lab, tmp_path):
    open_page(lab, "explorer", labkit.explore("memory"), tmp_path)
    lab.page.set_viewport_size({"width": 832, "height": 768})  # as a cell of JupyterLab
    lab.page.evaluate(WATCH)
    lab.page.get_by_label("recomputation").select_option(label="full")
    ends = lab.page.wait_for_function("() => window.written['recomputed layer']")
    assert ends.json_value() <= 1


def test_a_click_on_the_map_shows_the_descent_at_this_point(lab, tmp_path):
    open_page(lab, "explorer", labkit.explore("stability"), tmp_path)
    says = lab.page.locator(".says")
    assert "Delay 3, step 0.5: it diverges" in says.inner_text()
    lab.page.locator(".explorer canvas").click(position={"x": 90, "y": 300})
    says.filter(has_text="it converges").wait_for()


def test_a_pipeline_takes_another_schedule_and_plays_it(lab, tmp_path):
    timeline = pipelines.schedule("1f1b", stages=4, micro_batches=8).timeline()
    open_page(lab, "pipeline", timeline.player(), tmp_path)
    assert unreadable(lab, "pipeline") == []
    numbers, host = lab.page.locator(".pipeline header"), lab.page.locator(".labkit-pipeline")
    assert "9 = (p − 1)(F + B): 27.3 % of the step 33" in numbers.inner_text()
    lab.page.get_by_label("schedule", exact=True).select_option("zb-h1")
    lab.page.get_by_label("stages", exact=True).select_option("8")
    lab.page.get_by_label("micro-batches", exact=True).select_option("16")
    numbers.filter(has_text="= (p − 1)(F + B − W): ").wait_for()
    lab.page.get_by_label("Timeline of zb-h1, 8 stages × 16 micro-batches").wait_for()
    lab.page.locator(".pipeline").focus()
    lab.page.keyboard.press("End")
    lab.page.locator(".says", has_text="rank 7 is done").wait_for()
    lab.page.keyboard.press("ArrowLeft")
    lab.page.keyboard.press("ArrowRight")
    lab.page.locator(".says", has_text="rank 7 is done").wait_for()
    # In the timeline the arrows lead from piece to piece, and each is read aloud.
    lab.page.locator(".pipeline canvas").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
        lab.page.keyboard.press(key)
    says = lab.page.locator(".says[aria-live=polite]")
    says.filter(has_text="Rank 1, stage 1: F1, forward of micro-batch 1, from 2 to 3.").wait_for()
    lab.page.keyboard.press("Escape")
    says.filter(has_text="rank 7 is done").wait_for()
    lab.page.keyboard.press("Home")
    lab.page.get_by_label("speed").select_option("4")
    lab.page.locator(".play").click()
    lab.page.wait_for_function("(one) => Number(one.dataset.step) > 3", arg=host.element_handle())
    lab.page.locator(".play").click()
    lab.page.locator(".play[aria-label=play]").wait_for()
    assert lab.faults == []


def test_of_two_pipelines_each_has_its_own_schedule_size_and_kind(lab, tmp_path):
    first, second = (
        pipelines.schedule(name, stages=stages, micro_batches=8).timeline(hop=hop)
        for name, stages, hop in (("gpipe", 4, 0.1), ("1f1b", 2, 0.3))
    )
    open_page(lab, "pipelines", first.beside(second).player(), tmp_path)
    numbers, kinds = lab.page.locator("header > span:last-child"), lab.page.locator("footer em")
    before = numbers.first.inner_text()
    lab.page.get_by_label("stages", exact=True).last.select_option("8")
    lab.page.get_by_label("time of a message").last.fill("0")
    lab.page.get_by_label("Timeline of 1f1b, 8 stages × 8 micro-batches").wait_for()
    assert numbers.first.inner_text() == before
    assert [one.inner_text().rpartition(", ")[2] for one in kinds.all()] == ["hop 0.1", "hop 0"]
    assert lab.faults == []
