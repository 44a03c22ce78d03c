"""Decks of slides, as a lecturer opens them: from a disk, in Chromium, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("sphinx_revealjs", reason="make setup-site")

from labkit.cli import main
from labkit.kit.slides import page, slides

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9c]*.ipynb"))
SIZE = {"width": 1366, "height": 768}
# What is wrong with each slide: something outside, nothing below the heading, letters too small to
# read, a picture that the text has left no room for. A view takes its room a frame later.
FAULTS = """async () => {
  const faults = (slide) => {
    const found = [];
    const seen = [...slide.querySelectorAll("*")]
      .filter((one) => !one.closest("aside") && one.checkVisibility());
    for (const one of seen) {
      const { width, right, bottom } = one.getBoundingClientRect();
      if (width && (right > innerWidth + 1 || bottom > innerHeight + 1))
        found.push(`${one.localName} ends outside`);
    }
    const filled = "p, li, pre, td, math, img, [data-labkit]";
    if (!seen.some((one) => one.matches(filled))) found.push("blank");
    for (const one of slide.querySelectorAll("pre"))
      if (parseFloat(getComputedStyle(one).fontSize) < 9) found.push("small letters");
    for (const one of slide.querySelectorAll("figure"))
      if (one.getBoundingClientRect().height < 200) found.push("small picture");
    return found;
  };
  const all = [];
  for (let number = 1; number <= Reveal.getTotalSlides(); number += 1) {
    const slide = Reveal.getCurrentSlide();
    if (slide.querySelector("[data-labkit]"))
      for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
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
    long = "A **rank** is one of the processes. " + "It has a number. " * 20
    made = slides(
        [
            cell(f"# Title\n\n{long}\n\n- one\n- two", "slide"),
            cell("More.", "notes"),
            cell("Not this.", "skip"),
            cell("The end of it.\n\n## Next\n\nShort.", "slide"),
            cell("$$x = 1$$", "subslide"),
        ]
    )
    assert [(one.below, one.title) for one in made] == [
        (False, "Title"), (False, "Next"), (True, "Next"),
    ]  # fmt: skip
    first, second, third = made
    assert "<strong>rank</strong>" in first.seen
    assert "<li>two</li>" in first.seen
    assert "has a number" not in first.seen
    assert first.notes.count("has a number") == 20
    assert "More." in first.notes
    assert "The end of it." in first.notes
    assert "Not this." not in page(made)
    assert "Short." in second.seen
    assert "<math" in third.seen


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
