"""Every picture of the course is up to date, legible, described in words, and small."""

import re
import sys
from functools import cache
from pathlib import Path

import pytest

import labkit
from labkit.kinds import LabError
from labkit.views.sketch import WIDTH, Sketch
from tests.views.legibility import check_apart, check_contrast, lines_of

IMAGES = Path(__file__).parents[1] / "images"
sys.path.insert(0, str(IMAGES))
import draw  # noqa: E402

every_picture = pytest.mark.parametrize("name", draw.NAMES)


@cache
def board(name):
    return draw.importlib.import_module(name).draw()


@every_picture
def test_words_stay_apart_on_the_page_and_inside_their_boxes(name):
    drawn = board(name)
    for text, size, area, box in drawn.words:
        top, bottom, right = area.y, area.y + area.height, area.x + area.width
        if box is not None and text.strip():
            assert box.x + 3 <= area.x <= right <= box.x + box.width - 3, text
            assert box.y - 1 <= top <= bottom <= box.y + box.height + 1, text
        assert 20 <= area.x <= right <= WIDTH - 20 or not text.strip(), text
        assert 10 <= top <= bottom <= drawn.height - 4 or not text.strip(), text
        assert size >= 8.5, text
    check_apart(lines_of(drawn), WIDTH, drawn.height)
    for box in drawn.boxes:
        assert 20 <= box.x <= box.x + box.width <= WIDTH - 20
        assert box.y + box.height <= drawn.height


@every_picture
def test_words_can_be_read_on_light_and_dark_pages(name):
    check_contrast(lines_of(board(name)), (IMAGES / f"{name}.png").read_bytes())


@every_picture
def test_the_file_shows_what_its_script_draws(name):
    path = IMAGES / f"{name}.png"
    assert draw.is_current(path, board(name).picture(draw.importlib.import_module(name).ALT))
    assert path.stat().st_size < 120_000
    assert len(labkit.picture(name).alt) > 80


@pytest.mark.parametrize("name", [name for name in draw.NAMES if name.startswith("op_")])
def test_the_words_of_a_collective_name_every_promised_value(name):
    words = [word.text for word in board(name).words]
    after = words[words.index("after") :]
    alt = draw.importlib.import_module(name).ALT.partition("After:")[2]
    assert len(re.findall(r"\d+", alt)) >= 4
    assert set(re.findall(r"\d+", alt)) <= {*after, *words}


def test_every_file_has_a_script():
    assert {path.stem for path in IMAGES.glob("*.png")} == set(draw.NAMES)


def lettered(letter, alt="One box."):
    made = Sketch("A title", 120)
    made.box(100, 50, 120, 40, f"layer {letter}", size=9)
    return made.picture(alt)


def test_one_changed_letter_makes_a_picture_stale(tmp_path):
    path = tmp_path / "one.png"
    assert not draw.is_current(path, lettered("1"))
    lettered("1").save(path)
    assert draw.is_current(path, lettered("1"))
    assert not draw.is_current(path, lettered("7"))
    assert not draw.is_current(path, lettered("1", alt="Two boxes."))


def test_an_unknown_picture_lists_the_known_ones():
    with pytest.raises(LabError, match=r"'horse'.*kinds"):
        labkit.picture("horse")
