"""The player as a student sees it: in a notebook, reopened, exported, untrusted, in both themes.

LABKIT_SHOTS=FOLDER keeps pictures.
"""

from __future__ import annotations

import os
import statistics
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit import collectives
from tests.browser.lab import Lab
from tests.browser.test_panel import CONTRAST as OF_PANEL

CELLS = [
    new_code_cell(
        "from labkit import collectives\n"
        "collectives.run(collectives.programs.ring_all_reduce, ranks=4).player()"
    )
]
HOST = "document.querySelector('.labkit-player')"
CONTRAST = OF_PANEL.replace("labkit-panel", "labkit-player").replace("'.panel'", "'.player'")
# How long the frames are while it plays.
FRAMES = """async (count) => {
  const root = document.querySelector('.labkit-player').shadowRoot;
  root.querySelector('.first').click();
  root.querySelector('.play').click();
  const stamps = [];
  while (stamps.length < count) stamps.push(await new Promise(requestAnimationFrame));
  root.querySelector('.play').click();
  return stamps.slice(1).map((one, i) => one - stamps[i]);
}"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("player")
    nbformat.write(new_notebook(cells=CELLS), folder / "live.ipynb")
    with Lab(folder) as lab:
        yield lab


@cache
def traced(name, ranks):
    return collectives.run(getattr(collectives.programs, name), ranks=ranks)


def keep_picture(lab, name):
    folder = os.environ.get("LABKIT_SHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        lab.page.screenshot(path=Path(folder) / name)


def open_page(lab, tmp_path, name, ranks):
    lab.faults.clear()
    file = traced(name, ranks).player().save(tmp_path / f"{name}-{ranks}.html")
    lab.page.goto(file.as_uri())
    lab.page.wait_for_selector(".labkit-player[data-opening]")


def step_is(lab, step):
    lab.page.wait_for_function(f"(step) => {HOST}.dataset.step === step", arg=str(step))


def words(lab, selector):
    return lab.page.locator(selector).first.inner_text().replace("\xa0", " ")


@pytest.mark.timeout(300)
def test_it_plays_in_a_notebook_and_is_there_again_when_reopened(opened):
    lab = opened
    lab.open("live.ipynb")
    assert lab.run_all(90)
    lab.page.wait_for_selector(".labkit-player[data-state=ready]")
    lab.page.locator(".stage").click(position={"x": 200, "y": 60})
    # Its keys are its own: "0 0" would ask to restart the kernel, an arrow go to the next cell.
    for key in ("0", "0", "ArrowRight"):
        lab.page.keyboard.press(key)
    step_is(lab, 1)
    assert lab.page.locator(".jp-Dialog").count() == 0
    assert "Every rank sends to the next one" in words(lab, ".says")
    lab.page.keyboard.press("Space")
    step_is(lab, 6)
    for theme in ("Dark", "Light"):
        lab.theme(f"JupyterLab {theme}")
        lab.page.locator(f".player[data-theme={theme.lower()}]").wait_for()
        lab.page.wait_for_timeout(300)
        keep_picture(lab, f"player-lab-{theme.lower()}.png")
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
def test_without_trust_there_is_the_picture(opened):
    lab = opened
    lab.faults.clear()
    data, metadata = traced("ring_all_reduce", 4).player()._repr_mimebundle_()
    output = nbformat.v4.new_output("execute_result", data, metadata=metadata, execution_count=1)
    cell = new_code_cell("collectives.run(...)", outputs=[output], execution_count=1)
    nbformat.write(new_notebook(cells=[cell]), lab.folder / "strange.ipynb")
    lab.page.goto(f"{lab.url}/lab/tree/strange.ipynb?token={lab.token}&reset")
    shown = lab.page.locator(".jp-OutputArea-output img")
    shown.wait_for()
    keep_picture(lab, "player-untrusted.png")
    assert lab.page.locator(".labkit-player[data-state]").count() == 0
    assert shown.evaluate("(one) => one.decode().then(() => one.naturalWidth)") == 1600
    lab.close_notebook()


def test_an_exported_notebook_plays_without_a_kernel(opened, tmp_path):
    lab = opened
    lab.faults.clear()
    from nbconvert import HTMLExporter

    data, metadata = traced("ring_all_reduce", 8).player()._repr_mimebundle_()
    output = nbformat.v4.new_output("execute_result", data, metadata=metadata, execution_count=1)
    book = new_notebook(cells=[new_code_cell("trace", outputs=[output], execution_count=1)])
    file = tmp_path / "exported.html"
    file.write_text(HTMLExporter().from_notebook_node(book)[0], encoding="utf-8")
    # A page without a network: what asks a CDN would wait.
    lab.page.context.set_offline(True)
    try:
        lab.page.goto(file.as_uri(), wait_until="commit")
        lab.page.wait_for_selector(".labkit-player[data-state=ready]")
        lab.page.locator(".forward").click()
        step_is(lab, 1)
        keep_picture(lab, "player-exported.png")
    finally:
        lab.page.context.set_offline(False)


@pytest.mark.parametrize("ranks", [8, 64])
def test_it_moves_smoothly_in_both_views(opened, tmp_path, ranks):
    lab = opened
    open_page(lab, tmp_path, "ring_all_reduce", ranks)
    for view in ("Grid", "Circle"):
        lab.page.get_by_role("button", name=view).click()
        # The issue promises sixty frames a second; here other tests may run beside this one.
        assert statistics.median(lab.page.evaluate(FRAMES, 60)) < 40
        keep_picture(lab, f"player-{ranks}-{view.lower()}.png")
    assert lab.faults == []


def test_it_can_be_played_and_read_with_the_keyboard_alone(opened, tmp_path):
    lab = opened
    open_page(lab, tmp_path, "tree_all_reduce", 8)
    aloud = lab.page.locator(".player > [aria-live]")
    assert "14 messages in 6 steps" in lab.page.locator(".player").get_attribute("aria-label")
    lab.page.locator(".stage").focus()
    lab.page.keyboard.press("End")
    step_is(lab, 6)
    lab.page.keyboard.press("Shift+ArrowRight")
    lab.page.locator(".player > [aria-live]", has_text="Rank 0").wait_for(state="attached")
    assert "232. All 8 contributions, each once." in aloud.inner_text()
    for key in ("Escape", "Home", "ArrowRight"):
        lab.page.keyboard.press(key)
    step_is(lab, 1)
    lab.page.locator(".player > [aria-live]", has_text="Step 1 of 6").wait_for(state="attached")
    assert "Ranks 4–7 send to the rank 4 places back" in words(lab, ".says")
    # The lines of the program in which the ranks are, and who is in which.
    on = [one.inner_text() for one in lab.page.locator(".line[aria-current]").all()]
    assert len(on) == 2
    assert [("4–7" in one, "comm.Send" in one) for one in on] == [(True, True), (False, False)]
    assert [("0–3" in one, "comm.Recv" in one) for one in on] == [(False, False), (True, True)]
    # A slider for those who use one, with the step as its words.
    slider = lab.page.get_by_role("slider", name="step")
    slider.focus()
    lab.page.keyboard.press("ArrowRight")
    lab.page.locator(".slider[aria-valuetext='step 2 of 6']").wait_for()
    assert lab.faults == []


def test_the_pointer_finds_the_cell_under_it(opened, tmp_path):
    lab = opened
    open_page(lab, tmp_path, "ring_all_reduce", 2)
    lab.page.locator(".last").click()
    box = lab.page.locator(".stage").bounding_box()
    lab.page.mouse.move(box["x"] + 90, box["y"] + 90)
    lab.page.locator(".detail", has_text="Rank 1, element 0: 4. All 2 contributions").wait_for()
    lab.page.mouse.move(box["x"] + 20, box["y"] + 30)
    lab.page.locator(".detail", has_text="It has sent 16").wait_for()


def test_who_wants_less_motion_sees_steps_and_no_flight(opened, tmp_path):
    lab = opened
    lab.page.emulate_media(reduced_motion="reduce")
    try:
        open_page(lab, tmp_path, "broadcast", 8)
        lab.page.locator(".forward").click()
        step_is(lab, 1)
        lab.page.locator(".play").click()
        seen = lab.page.evaluate(f"""async () => {{
          const seen = new Set();
          while ({HOST}.dataset.step !== '3') {{
            seen.add(Number({HOST}.dataset.step));
            await new Promise(requestAnimationFrame);
          }}
          return [...seen];
        }}""")
        assert set(seen) <= {1, 2}
    finally:
        lab.page.emulate_media(reduced_motion="no-preference")


def test_its_words_are_readable_in_every_scheme(opened, tmp_path):
    lab = opened
    lab.page.set_viewport_size({"width": 620, "height": 900})
    try:
        for scheme, forced in (("light", "none"), ("dark", "none"), ("dark", "active")):
            lab.page.emulate_media(color_scheme=scheme, forced_colors=forced)
            open_page(lab, tmp_path, "recursive_doubling_all_reduce", 6)
            lab.page.locator(".forward").click()
            step_is(lab, 1)
            keep_picture(lab, f"player-narrow-{scheme}-{forced}.png")
            assert lab.page.evaluate(CONTRAST) == []
            assert lab.page.evaluate("() => document.documentElement.scrollWidth") <= 620
    finally:
        lab.page.emulate_media(color_scheme="light", forced_colors="none")
        lab.page.set_viewport_size({"width": 1200, "height": 1000})


def test_on_paper_the_step_is_there_without_its_buttons(opened, tmp_path):
    lab = opened
    open_page(lab, tmp_path, "ring_all_reduce", 4)
    lab.page.emulate_media(media="print", color_scheme="dark")
    try:
        lab.page.locator(".player[data-theme=light]").wait_for()
        assert not lab.page.locator(".controls").is_visible()
        assert lab.page.locator(".stage").is_visible()
        keep_picture(lab, "player-print.png")
    finally:
        lab.page.emulate_media(media="screen", color_scheme="light")
