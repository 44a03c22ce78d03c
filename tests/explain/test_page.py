"""The page of an explanation, its pictures, and two of them side by side."""

import io
import re
from dataclasses import replace

import pytest
from PIL import Image

from labkit import explain
from labkit.explain import page
from labkit.explain.causes import CAUSES, PARTS
from labkit.explain.explanation import RankParts
from labkit.views.figure import SCALE
from tests.explain.explanations import PLAIN, full, rank, reason
from tests.views.legibility import check_apart, check_contrast, drawn


def test_the_page_says_everything_and_needs_nothing_else():
    html = page.page(full())
    assert not re.findall(r'(?:src|href)="(?!data:)', html)
    pictures = re.findall(r"<img[^>]*>", html)
    assert len(pictures) == 3
    assert all('alt="' in one and "labkit-picture" in one for one in pictures)
    for one in full().findings:
        assert one.change in html
        assert str(one.gain or "") in html
    assert "seen &lt;here&gt;" in html
    assert "it had not ended after 30 s" in html
    assert "modelled" in html


def test_a_program_of_which_nothing_was_seen_has_a_page_and_a_comparison():
    assert "<img" not in page.page(PLAIN)
    compared = explain.compare(PLAIN, full())
    assert [row[0] for row in compared.rows] == ["ranks", "a step"]


@pytest.mark.parametrize("name", ["gains", "timeline", "parts_of_a_step"])
def test_words_stay_apart_and_can_be_read(name, monkeypatch):
    with drawn(monkeypatch) as words:
        picture = getattr(page, name)(full())
    width, height = (edge / SCALE for edge in Image.open(io.BytesIO(picture.png)).size)
    assert words
    check_apart(words, width, height)
    check_contrast(words, picture.png)


def test_both_pictures_of_a_step_give_a_part_the_same_name_and_look():
    explanation = full()
    steps, parts = page.timeline(explanation), page.parts_of_a_step(explanation)
    named = [words for words in PARTS.values() if words in parts.alt]
    assert 2 < len(named) <= 7  # as many as there are looks
    assert all(part in steps.alt for part in [k for k, v in PARTS.items() if v in named])


def test_what_is_too_short_for_a_pixel_still_takes_its_share():
    """Thousands of collectives in a step are not an empty lane."""
    spans = [("comm", 0.001 * n, 0.0008) for n in range(5000)]
    one = RankParts({"comm": 0.32, "rest": 0.08}, [0.4 * n for n in range(13)], spans)
    found = page.innermost(one.spans, ["comm"], 0.0, 4.8)
    comm = sum(b - a for part, a, b in found if part == "comm")
    assert comm == pytest.approx(0.8 * 4.8, rel=0.05)


def test_ranks_are_on_one_clock():
    late = rank(["forward", "backward"])
    shifted = RankParts(late.parts, [m + 0.05 for m in late.marks],
                        [(p, s + 0.05, d) for p, s, d in late.spans])  # fmt: skip
    alt = page.timeline(replace(full(), ranks=[late, shifted])).alt
    first, second = (sum(map(float, re.findall(r"\d\.\d+", one))) for one in alt.split("rank ")[1:])
    assert first - second == pytest.approx(0.05, abs=0.01)  # it begins later


def test_a_comparison_says_what_went_what_came_and_what_cannot_be_told():
    after = replace(full(), step=0.05, findings=[reason("input", 1.5, 1.6, 1.7)], looked_for=[])
    found = explain.compare(full(), after)
    assert found.rows[1][3].startswith("2.00")
    about = {line[: line.index(".")].lower(): line for line in found.footer.splitlines()}
    went, came = about[CAUSES["checkpoints"].says], about[CAUSES["input"].says]
    assert "1.20 to 1.60" in went.partition("after:")[0]
    assert "1.20" not in went.partition("after:")[2]
    assert "30 s" in came.partition("after:")[0]  # it was measured before, in vain
    unsure = replace(after, verdict="cannot tell: runs vary", findings=[])
    assert "after: cannot tell" in explain.compare(full(), unsure).footer


def test_what_is_saved_is_read_again(tmp_path):
    assert explain.read(full().save(tmp_path / "found.json")) == full()
    assert (full().save(tmp_path / "found.html")).read_text(encoding="utf-8").startswith("<!doc")


def test_a_notebook_shows_text_and_the_view():
    shown = full()._repr_mimebundle_()
    assert shown["text/plain"] == repr(full())
    assert shown["text/html"] in page.page(full())
