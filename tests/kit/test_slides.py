"""Decks of slides, as a lecturer opens them: from a disk, in Chromium, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("sphinx_revealjs", reason="make setup-website")

from labkit.cli import main
from labkit.kit.slides import page, slides

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9c]*.ipynb"))
SIZE = {"width": 1366, "height": 768}
# What is wrong with each slide: something outside, less than 40 % filled, letters too small, a
# picture that the text has left no room for, raw Markdown, a task's card. Filled is the smallest
# box around all letters, pictures and views, of the whole window, when all is shown. No slide is
# excused, titles least of all. A view takes its room some frames later.
FAULTS = """async () => {
  const filled = (seen) => {
    const boxes = seen.filter((one) => one.matches("img, math, table, [data-labkit]"));
    const letters = seen.flatMap((one) => [...one.childNodes])
      .filter((one) => one.nodeType === 3 && one.data.trim());
    const all = boxes.map((one) => one.getBoundingClientRect());
    for (const one of letters) {
      const range = document.createRange();
      range.selectNode(one);
      all.push(...range.getClientRects());
    }
    const end = (name, most) => most(...all.map((one) => one[name]));
    const wide = end("right", Math.max) - end("left", Math.min);
    return wide * (end("bottom", Math.max) - end("top", Math.min)) / innerWidth / innerHeight;
  };
  const faults = (slide) => {
    const found = [];
    const seen = [...slide.querySelectorAll("*")]
      .filter((one) => !one.closest("aside") && one.checkVisibility());
    for (const one of seen) {
      const { width, right, bottom } = one.getBoundingClientRect();
      if (width && (right > innerWidth + 1 || bottom > innerHeight + 1))
        found.push(`${one.localName} ends outside`);
    }
    if (!(filled(seen) > 0.4)) found.push(`${Math.round(100 * filled(seen))} % filled`);
    for (const one of slide.querySelectorAll("pre"))
      if (parseFloat(getComputedStyle(one).fontSize) < 12) found.push("small letters");
    for (const one of slide.querySelectorAll("figure img")) {
      const { width, height } = one.getBoundingClientRect();
      if (width < 0.85 * innerWidth && height < 0.45 * innerHeight) found.push("small picture");
    }
    const said = seen.filter((one) => !one.closest("pre, code"))
      .flatMap((one) => [...one.childNodes].map((child) => child.data ?? "")).join(" ");
    found.push(...["`", "](", "Not answered yet"].filter((one) => said.includes(one)));
    return found;
  };
  const all = [];
  for (let number = 1; number <= Reveal.getTotalSlides(); number += 1) {
    const slide = Reveal.getCurrentSlide();
    const views = [...slide.querySelectorAll("[data-labkit]")];
    for (let before = "", still = 0; still < 3 && views.length; ) {
      await new Promise(requestAnimationFrame);
      const now = views.map((one) => one.getBoundingClientRect().height).join();
      [before, still] = [now, now === before && now !== "0" ? still + 1 : 0];
    }
    all.push(...faults(slide).map((fault) => `${number}: ${fault}`));
    Reveal.next();
    while (Reveal.availableFragments().next) Reveal.nextFragment();
  }
  return all;
}"""


@pytest.fixture
def tab(browser):
    """A page, and all that it said and asked for."""
    context = browser.new_context(viewport=SIZE, offline=True)
    page, heard = context.new_page(), []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: heard.append(request.url))
    yield page, heard
    context.close()


def opened(page, file):
    page.goto(file.as_uri())
    page.wait_for_function("window.Reveal?.isReady()")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_slide_of_a_lecture_is_filled_and_fits(path, tab, tmp_path):
    page, heard = tab
    assert main(["slides", path.stem, "--to", str(tmp_path)]) == 0
    opened(page, tmp_path / f"{path.stem}.html")
    assert page.evaluate(FAULTS) == []
    assert page.evaluate("Reveal.isLastSlide()")
    assert [one for one in heard if not one.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_cell_of_a_lecture_says_what_it_is_on_a_slide(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert [one["id"] for one in cells if "slideshow" not in one["metadata"]] == []


def cell(text, kind, cell_type="markdown", **more):
    return {
        "cell_type": cell_type, "source": [text], "metadata": {"slideshow": {"slide_type": kind}},
        **more,
    }  # fmt: skip


def test_what_a_slide_has_no_room_for_goes_to_its_notes():
    long = "A **rank** is one of the processes. " + "Each has a number. " * 30
    made = slides(
        [
            cell(f"## Title\n\n{long}\n\n- one\n- two", "slide"),
            cell("More.", "notes"),
            cell("Not this.", "skip"),
            cell("The end of it.\n\n## Next\n\nShort.", "slide"),
            cell("$$x = 1$$", "subslide"),
        ]
    )
    assert [(one.below, one.title) for one in made] == [(False, "Title"), (False, "Next")]
    first, second = made
    assert "<strong>rank</strong>" in first.seen
    assert "<li>two</li>" in first.seen
    assert 0 < first.seen.count("has a number") < 30
    assert first.notes.count("has a number") == 30
    assert "More." in first.notes
    assert "The end of it." in first.notes
    assert "Not this." not in page(made)
    assert "Short." in second.seen
    assert "<math" in second.seen


def test_a_task_is_whole_and_a_guess_comes_before_its_result():
    statement = "Write my_sum(comm), in 3 steps.\nOn any number of ranks."
    plain = f"○ Not answered yet. Difficulty 1 of 3. {statement}"
    card = {"text/plain": plain, "text/html": "<p>Task 1 of 2 in lecture 22.</p>"}
    counted = {"output_type": "stream", "text": "9.00 times"}
    code = 'import labkit\nguess = labkit.predict("bytes", unit="×")\nprint(run())'
    made = slides(
        [
            cell("# Title\n\nYou learn.", "slide"),
            cell("## Sums\n\n**Exercise.** Write it.", "slide"),
            cell('check("22.sum", my_sum)', "skip", "code", outputs=[{"data": card}]),
            cell("Rank 0 is busy. How many bytes go through it?", "notes"),
            cell(code, "skip", "code", outputs=[counted]),
        ]
    )
    _, task, guess = (one.seen for one in made)
    assert "Write my_sum(comm), in 3 steps.<br>On any number of ranks." in task
    assert "22.sum" in task
    assert "Write it." not in task
    assert "Write it." in made[1].notes
    asked, _, shown = guess.partition('<div class="fragment">')
    assert "through it?" in asked
    assert "9.00 times" not in asked
    assert "9.00 times" in shown


def test_escape_gives_the_arrow_keys_back(tab, tmp_path):
    from labkit import collectives

    tab, _ = tab
    player = collectives.run(collectives.programs.ring_all_reduce, ranks=4).player()
    output = {"output_type": "display_data", "data": {"text/html": player.html()}, "metadata": {}}
    cells = [cell("# Title", "slide"), cell("player", "-", "code", outputs=[output])]
    file = tmp_path / "deck.html"
    file.write_text(page(slides([*cells, cell("## Next\n\nText.", "slide")])), "utf-8")
    opened(tab, file)
    tab.locator(".stage").click(position={"x": 200, "y": 60})
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function("document.querySelector('.labkit-player').dataset.step === '1'")
    assert tab.evaluate("Reveal.getIndices().h") == 0
    tab.keyboard.press("Escape")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("Reveal.getIndices().h") == 1
