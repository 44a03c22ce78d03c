"""The player as a student sees it: in a notebook, reopened, exported, untrusted, in both themes."""

from __future__ import annotations

from functools import cache

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from labkit import collectives
from tests.browser.test_panel import CONTRAST as OF_PANEL

CELL = """from labkit import collectives
collectives.run(collectives.programs.ring_all_reduce, ranks=4).player()"""
HOST = "document.querySelector('.labkit-player')"
CONTRAST = OF_PANEL.replace("labkit-panel", "labkit-player").replace("'.panel'", "'.player'")


@cache
def player(name, ranks):
    return collectives.run(getattr(collectives.programs, name), ranks=ranks).player()


def open_page(lab, tmp_path, name, ranks):
    lab.faults.clear()
    lab.page.goto(player(name, ranks).save(tmp_path / f"{name}-{ranks}.html").as_uri())
    lab.page.wait_for_selector(".labkit-player[data-opening]")


def step_is(lab, step):
    lab.page.wait_for_function(f"(step) => {HOST}.dataset.step === step", arg=str(step))


def saved_notebook():
    data, metadata = player("ring_all_reduce", 4)._repr_mimebundle_()
    output = new_output("execute_result", data, metadata=metadata, execution_count=1)
    return new_notebook(cells=[new_code_cell("trace", outputs=[output], execution_count=1)])


@pytest.mark.timeout(300)
def test_it_plays_in_a_notebook_and_is_there_again_when_reopened(lab):
    nbformat.write(new_notebook(cells=[new_code_cell(CELL)]), lab.folder / "live.ipynb")
    lab.open("live.ipynb")
    assert lab.run_all(90)
    lab.page.wait_for_selector(".labkit-player[data-state=ready]")
    lab.page.locator(".pane").first.click(position={"x": 200, "y": 60})
    # Its keys are its own: "0 0" would ask to restart the kernel, an arrow go to the next cell.
    for key in ("0", "0", "ArrowRight"):
        lab.page.keyboard.press(key)
    step_is(lab, 1)
    assert lab.page.locator(".jp-Dialog").count() == 0
    lab.page.keyboard.press("Space")
    step_is(lab, 6)
    for theme in ("Dark", "Light"):
        lab.theme(f"JupyterLab {theme}")
        lab.page.locator(f".player[data-theme={theme.lower()}]").wait_for()
    assert lab.ask("figureFaults") == []
    lab.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    lab.page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")
    lab.close_notebook()

    lab.page.goto(f"{lab.url}/lab/tree/live.ipynb?token={lab.token}&reset")
    lab.page.wait_for_selector(".labkit-player[data-state=ready]")
    lab.page.locator(".last").click()
    step_is(lab, 6)
    assert lab.faults == []
    lab.close_notebook()


@pytest.mark.timeout(300)
def test_without_trust_there_is_the_picture(lab):
    nbformat.write(saved_notebook(), lab.folder / "strange.ipynb")
    lab.page.goto(f"{lab.url}/lab/tree/strange.ipynb?token={lab.token}&reset")
    shown = lab.page.locator(".jp-OutputArea-output img")
    shown.wait_for()
    assert lab.page.locator(".labkit-player[data-state]").count() == 0
    assert shown.evaluate("(one) => one.decode().then(() => one.naturalWidth)") == 800
    assert lab.page.get_by_text("run the cell to play it").is_visible()
    lab.close_notebook()


def test_on_paper_the_picture_is_in_its_column(lab, tmp_path):
    """Chromium prints a canvas only where the flow of the page has put it."""
    open_page(lab, tmp_path, "ring_all_reduce", 4)
    assert not lab.page.get_by_text("run the cell to play it").is_visible()
    lab.page.emulate_media(media="print")
    places = lab.page.locator(".base").evaluate_all("""(all) => all.map((one) => {
      const [inner, outer] = [one, one.parentElement].map((each) => each.getBoundingClientRect());
      const inside = inner.right <= outer.right && inner.bottom <= outer.bottom;
      return [getComputedStyle(one).position, inside];
    })""")
    lab.page.emulate_media(media="screen")
    assert places == [["static", True]] * 2


def test_it_can_be_played_and_read_with_the_keyboard_alone(lab, tmp_path):
    open_page(lab, tmp_path, "tree_all_reduce", 8)
    aloud = lab.page.locator(".player > [aria-live]")
    assert "14 messages in 6 steps" in lab.page.locator(".player").get_attribute("aria-label")
    lab.page.locator(".pane").first.focus()
    lab.page.keyboard.press("End")
    step_is(lab, 6)
    lab.page.keyboard.press("Shift+ArrowRight")
    aloud.filter(has_text="Rank 0").wait_for(state="attached")
    assert "all 8 contributions, each once" in aloud.inner_text()
    for key in ("Escape", "Home", "ArrowRight"):
        lab.page.keyboard.press(key)
    step_is(lab, 1)
    aloud.filter(has_text="Step 1 of 6").wait_for(state="attached")
    # The lines of the program in which the ranks are, and who is in which.
    on = [one.inner_text() for one in lab.page.locator(".line[aria-current]").all()]
    assert sorted(("4–7" in one, "comm.Send" in one) for one in on) == [(False,) * 2, (True,) * 2]
    lab.page.get_by_role("slider", name="step").focus()
    lab.page.keyboard.press("ArrowRight")
    lab.page.locator(".slider[aria-valuetext='step 2 of 6']").wait_for()
    assert lab.faults == []


def test_stage_and_grid_stand_beside_each_other_and_mark_the_same(lab, tmp_path):
    lab.page.set_viewport_size({"width": 1366, "height": 768})
    open_page(lab, tmp_path, "ring_all_reduce", 4)
    stage, grid = (lab.page.locator(f".pane.{one}") for one in ("stage", "grid"))
    code, banner = lab.page.locator(".line:visible"), lab.page.locator(".banner")
    box = stage.bounding_box()
    assert box["height"] >= 400
    assert grid.bounding_box()["x"] > box["x"] + box["width"]
    lab.page.locator(".forward").click()
    step_is(lab, 1)
    # Rank 0 receives rank 3's chunk 3: 4 + 16.
    assert banner.inner_text().split("\n")[-2:] == ["4 + 16 = 20", "on rank 0"]
    assert code.count() == 1
    lab.page.get_by_role("button", name="whole program").press("Enter")
    assert code.count() == 13
    before = [one.locator(".moves").evaluate("(one) => one.toDataURL()") for one in (stage, grid)]
    lab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)  # rank 0
    lab.page.locator(".detail", has_text="Rank 0 has sent 8 B of 48 B").wait_for()
    after = [one.locator(".moves").evaluate("(one) => one.toDataURL()") for one in (stage, grid)]
    assert all(one != other for one, other in zip(before, after, strict=True))
    lab.page.locator(".last").click()
    lab.page.mouse.move(5, 5)
    banner.locator(".sum", has_text="6 steps").wait_for()
    for width, beside in ((1920, True), (1100, True), (700, False)):
        lab.page.set_viewport_size({"width": width, "height": 900})
        lab.page.wait_for_function(
            """([one, two, beside]) => {
              const [a, b] = [one, two].map((each) => each.getBoundingClientRect());
              return beside ? b.left > a.right && a.height >= 400 : b.top > a.bottom;
            }""",
            arg=[stage.element_handle(), grid.element_handle(), beside],
        )
    assert lab.faults == []


@pytest.mark.parametrize("width", [900, 1281])
def test_the_pointer_finds_the_cell_under_it_at_every_width(lab, tmp_path, width):
    # Half of all widths of the page give the ranks a width that is no whole number of pixels.
    lab.page.set_viewport_size({"width": width, "height": 1000})
    open_page(lab, tmp_path, "ring_all_reduce", 2)
    legend = lab.page.locator(".legend")
    legend.evaluate("(one) => { one.firstChild.kept = true; }")
    lab.page.locator(".last").click()
    box = lab.page.locator(".grid").bounding_box()
    lab.page.mouse.move(box["x"] + 90, box["y"] + 90)
    lab.page.locator(".detail", has_text="Rank 1, element 0: 4").wait_for()
    lab.page.mouse.move(box["x"] + 20, box["y"] + 5)
    lab.page.locator(".detail.hint").wait_for()
    # Arranged once, not in every frame.
    assert legend.evaluate("(one) => one.firstChild.kept")


def test_its_words_are_readable_in_every_scheme_and_on_paper(lab, tmp_path):
    lab.page.set_viewport_size({"width": 620, "height": 900})
    for scheme, forced in (("light", "none"), ("dark", "none"), ("dark", "active")):
        lab.page.emulate_media(color_scheme=scheme, forced_colors=forced)
        open_page(lab, tmp_path, "recursive_doubling_all_reduce", 6)
        lab.page.locator(".forward").click()
        step_is(lab, 1)
        assert lab.page.evaluate(CONTRAST) == []
        assert lab.page.evaluate("() => document.documentElement.scrollWidth") <= 620
    lab.page.emulate_media(media="print", color_scheme="dark", forced_colors="none")
    lab.page.locator(".player[data-theme=light]").wait_for()
    assert not lab.page.locator(".controls").is_visible()
    assert lab.page.locator(".pane.stage").is_visible()


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_brief_one_plays_once_it_is_in_sight_unless_motion_is_reduced(lab, tmp_path, motion):
    ring = collectives.run(collectives.programs.ring_all_reduce, ranks=4).player(brief=True)
    file = ring.save(tmp_path / "brief.html")
    text = file.read_text("utf-8").replace("<body>", '<body><p style="height: 3000px">', 1)
    file.write_text(text, "utf-8")
    lab.page.emulate_media(reduced_motion=motion)
    lab.page.set_viewport_size({"width": 700, "height": 500})
    lab.page.goto(file.as_uri())
    lab.page.wait_for_selector(".labkit-player[data-state=ready]")
    assert lab.page.evaluate(f"{HOST}.dataset.step ?? '0'")[0] == "0"
    lab.page.locator(".labkit-player").scroll_into_view_if_needed()
    step_is(lab, 0 if motion == "reduce" else 6)
    assert lab.page.locator(".pane:visible").count() == 1
    assert lab.page.locator(".slider").is_hidden()
    lab.page.emulate_media(reduced_motion="no-preference")


def test_two_runs_play_under_one_clock_and_say_where_each_is(lab, tmp_path):
    lab.page.set_viewport_size({"width": 1366, "height": 768})
    runs = [
        collectives.run(getattr(collectives.programs, name), ranks=4)
        for name in ("naive_all_reduce", "ring_all_reduce")
    ]
    both = runs[0].beside(runs[1], latency=1e-9, bandwidth=1e6).player()
    lab.faults.clear()
    lab.page.goto(both.save(tmp_path / "both.html").as_uri())
    lab.page.wait_for_selector(".labkit-players[data-state=ready]")
    says = lab.page.locator(".together > .says")
    says.filter(has_text="naive_all_reduce: reduce · ring_all_reduce: reduce-scatter").wait_for()
    assert lab.page.locator(".phases:visible").count() == 2
    # The ring has ended while the naive program still collects.
    lab.page.locator(".slider:visible").fill(str(70e-6))
    says.filter(has_text="naive_all_reduce: reduce · ring_all_reduce: done").wait_for()
    stages = [one.bounding_box() for one in lab.page.locator(".stage").all()]
    assert stages[1]["x"] > stages[0]["x"] + stages[0]["width"]
    assert max(one["y"] + one["height"] for one in stages) <= 768
    lab.page.set_viewport_size({"width": 700, "height": 614})  # 125 %, with a side bar
    lab.page.wait_for_function(
        "([a, b]) => a.getBoundingClientRect().bottom < b.getBoundingClientRect().top",
        arg=[one.element_handle() for one in lab.page.locator(".stage").all()],
    )
    lab.page.set_viewport_size({"width": 1366, "height": 768})
    lab.page.locator(".stage").last.focus()
    lab.page.keyboard.press("Shift+ArrowRight")
    lab.page.locator(".aloud").last.filter(has_text="Rank 0, element 0").wait_for(state="attached")
    lab.page.locator(".together").focus()
    lab.page.keyboard.press("End")
    says.filter(has_text="naive_all_reduce: done").wait_for()
    assert lab.faults == []
