"""Every picture of the course is up to date, legible, described in words, and small."""

import itertools
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import labkit
from labkit.kinds import LabError
from labkit.views.sketch import WIDTH, Sketch

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
    words = [word for word in drawn.words if word.text.strip()]
    for text, size, area, box in words:
        top, bottom, right = area.y, area.y + area.height, area.x + area.width
        if box is not None:
            assert box.x + 3 <= area.x <= right <= box.x + box.width - 3, text
            assert box.y - 1 <= top <= bottom <= box.y + box.height + 1, text
        assert 20 <= area.x <= right <= WIDTH - 20, text
        assert 10 <= top <= bottom <= drawn.height - 4, text
        assert size >= 8.5, text
    for (one, _, first, _), (two, _, second, _) in itertools.combinations(words, 2):
        beside = first.x + first.width <= second.x or second.x + second.width <= first.x
        above = min(first.y + first.height - second.y, second.y + second.height - first.y)
        assert beside or above <= 2, (one, two)
    for box in drawn.boxes:
        assert 20 <= box.x <= box.x + box.width <= WIDTH - 20
        assert box.y + box.height <= drawn.height


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
