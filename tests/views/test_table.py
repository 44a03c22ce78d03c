"""Tables: numbers to the right, words to the left, in HTML and in plain text alike."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.cluster.ranks.output import Log, OutputLine
from labkit.kinds import WIDTH, wrapped
from labkit.views.table import table, text_table

HEAD = ("what", "time", "note")
REASON = "Cheap kernels run for less time than the framework needs to start them, so speed drops."
ROWS = [["one device", "2.0 s", "fine"], ["two", "12.5 s", REASON], ["three", "not measured", "–"],
        ["four", "not seen", "–"]]  # fmt: skip


def cells(html, tag="td"):
    return re.findall(rf"<{tag}([^>]*)>([^<]*)</{tag}>", html)


def test_a_column_of_numbers_stands_to_the_right_with_its_head_and_never_breaks():
    html = table(HEAD, ROWS)
    by_text = {text: about for about, text in cells(html) + cells(html, "th")}
    assert all("right" in by_text[one] for one in ("2.0 s", "12.5 s", "not measured", "time"))
    assert all("left" in by_text[one] for one in ("what", "one device", "note", "fine", REASON))
    assert "nowrap" in by_text["12.5 s"]
    assert "nowrap" not in by_text[REASON]
    assert "anywhere" not in by_text[REASON]  # inside a name such as tf.distribute.Strategy, too
    assert 'scope="row"' in by_text["two"]


def test_words_stay_words_and_prose_stands_to_the_left():
    html = table(("<b>", "n"), [["<i>", "3 & 4"]], "1 < 2", "<br>", prose=True)
    assert not re.search(r"<(b|i|br)>|right", html)
    assert "3 &amp; 4" in html


def test_the_text_has_the_same_sides_and_is_wrapped():
    text = text_table(HEAD, ROWS, REASON + " " + REASON)
    lines = text.splitlines()
    ends = [lines[at].index(one) + len(one) for at, one in enumerate(("time", "2.0 s", "12.5 s"))]
    assert len(set(ends)) == 1
    assert lines[1].startswith("one device  ")
    assert lines[3].index("drops.") >= lines[0].index("note")  # under its column
    assert max(map(len, lines)) <= WIDTH
    assert text_table((), [[2 * REASON, "fine"]]).endswith(".  fine")  # no room to wrap it


@pytest.mark.parametrize("head", [HEAD, ()])
def test_a_table_without_rows_or_heads_is_a_table(head):
    assert table(head, []).count("<tr>") == bool(head)
    assert text_table(head, []) == "  ".join(head)


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n\r"), max_size=20)))
def test_wrapping_changes_only_spaces_at_line_ends(words):
    text = " ".join(words)
    assert wrapped(text, 30).split() == text.split()
    assert all(len(line) <= 30 for line in wrapped(text, 30).split("\n"))


def test_a_log_has_a_lane_for_each_rank_and_tells_the_error_stream():
    lines = [OutputLine(0.5, 0, "out", "a < b"), OutputLine(1.25, 3, "err", "x" * 1000)]
    html = Log(lines)._repr_mimebundle_()["text/html"]
    first, second = html.split("</tr><tr>")[1:]
    assert re.findall("solid|dashed", first) == ["solid", "solid"]
    assert re.findall("solid|dashed", second) == ["solid", "dashed"]
    assert "a &lt; b" in first
    assert len(second) < 1500
    assert repr(Log(lines)).startswith("  0.50 s  rank 0: a < b\n")
