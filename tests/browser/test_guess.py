"""The box of a guess in JupyterLab: what its cell shows stays hidden until a guess or "skip"."""

from __future__ import annotations

import json
import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

CELLS = [
    """import labkit
guess = labkit.predict("ranks that count", unit="ranks")
print("the ranks: 0 1 2 3")
guess.against(4)""",
    """second = labkit.predict("speed-up", unit="×")
print("the times: 2 s, 1 s")""",
    """print("twice as fast")
second.against(2.0)""",
]
TEXTS = "the ranks: 0 1 2 3", "the times: 2 s, 1 s", "twice as fast"


@pytest.fixture
def opened(lab):
    cells = [new_code_cell(source) for source in CELLS]
    nbformat.write(new_notebook(cells=cells), lab.folder / "guesses.ipynb")
    (lab.folder / "labkit-predictions.json").unlink(missing_ok=True)
    lab.open("guesses.ipynb")
    lab.page.evaluate("() => localStorage.clear()")  # of another test
    assert lab.run_all(60)
    lab.page.locator(".labkit-guess[data-state=ready]").nth(1).wait_for()
    return lab


def test_a_result_is_hidden_until_a_guess_and_the_guess_is_there_after_a_reload(opened):
    from playwright.sync_api import expect

    page, (first, second) = opened.page, opened.page.locator(".labkit-guess").all()
    printed, ratio, later = (
        page.locator(".jp-OutputArea-output pre", has_text=text) for text in TEXTS
    )
    outcomes = page.locator("[data-labkit-outcome]")
    for hidden in (printed, ratio, later, *outcomes.all()):
        expect(hidden).to_be_hidden()
    number = first.locator("input[type=number]")
    first.locator("input[type=range]").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert float(number.input_value()) > 100  # the middle of factors from 1 to 10,000
    spoken = first.locator("input[type=range]").get_attribute("aria-valuetext")
    assert spoken == f"{number.input_value()} ranks"
    number.fill("8")
    number.press("Enter")
    expect(printed).to_be_visible()
    expect(outcomes.first).to_have_text(re.compile("You guessed 8 ranks; counted 4 ranks: off by"))
    expect(ratio).to_be_hidden()
    second.get_by_role("button", name="skip").click()
    expect(ratio).to_be_visible()
    expect(later).to_be_visible()
    expect(outcomes.last).to_have_text("Speed-up. Measured 2.00×.")
    file = opened.folder / "labkit-predictions.json"
    for _ in range(300):  # the page shows a guess before the kernel has heard of it
        if file.exists():
            break
        page.wait_for_timeout(100)
    assert [one["guess"] for one in json.loads(file.read_text())] == [8]
    opened.keep_picture("guess.png")

    page.evaluate("async () => await jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    page.locator(".labkit-guess[data-state=ready]").nth(1).wait_for()
    expect(page.locator(".labkit-guess").first.get_by_role("status")).to_have_text(
        "You guess 8 ranks."
    )
    expect(printed).to_be_visible()
    assert opened.faults == []


def test_a_kernel_that_starts_again_knows_the_guess(opened):
    from playwright.sync_api import expect

    page = opened.page
    page.locator(".labkit-guess input[type=number]").first.fill("8")
    page.keyboard.press("Enter")
    expect(page.locator("[data-labkit-outcome]").first).to_contain_text("off by")
    page.evaluate("() => { localStorage.clear() }")
    assert opened.run_all(60)
    expect(page.locator("[data-labkit-outcome]").first).to_contain_text("off by")
    expect(page.locator(".jp-OutputArea-output pre", has_text=TEXTS[1])).to_be_hidden()
