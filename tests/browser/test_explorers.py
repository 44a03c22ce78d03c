"""Explorers and the pipeline's player as a student uses them, in both themes."""

from __future__ import annotations

import pytest

import labkit
from labkit import pipelines
from tests.browser.lab import Lab
from tests.browser.test_panel import CONTRAST as OF_PANEL

NAMES = ("all_reduce", "buckets", "checkpoints", "memory", "stability")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("explorers")) as opened:
        yield opened


def open_page(lab, view, player, tmp_path):
    lab.faults.clear()
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


@pytest.mark.parametrize("name", NAMES)
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
    lab.page.emulate_media(media="screen")
    assert lab.faults == []


def test_a_click_on_the_map_shows_the_descent_at_this_point(lab, tmp_path):
    open_page(lab, "explorer", labkit.explore("stability"), tmp_path)
    says = lab.page.locator(".says")
    assert "Delay 3, step 0.5: it diverges" in says.inner_text()
    lab.page.locator(".explorer canvas").click(position={"x": 90, "y": 300})
    says.filter(has_text="it converges").wait_for()


def test_a_pipeline_takes_another_schedule_and_plays_it(lab, tmp_path):
    timeline = pipelines.schedule("1f1b", stages=4, microbatches=8).timeline()
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
