"""Every picture of the course is up to date, legible, described in words, and small."""

import itertools
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import labkit
from labkit.kinds import LabError
from labkit.views.figure import style
from labkit.views.sketch import WIDTH, Sketch

IMAGES = Path(__file__).parents[1] / "images"
sys.path.insert(0, str(IMAGES))
import draw  # noqa: E402

every_picture = pytest.mark.parametrize("name", draw.NAMES)


@cache
def board(name):
    with style():
        return draw.importlib.import_module(name).draw()


@every_picture
def test_words_stay_apart_on_the_page_and_inside_their_boxes(name):
    drawn = board(name)
    renderer = FigureCanvasAgg(drawn.figure).get_renderer()
    extents = []
    for text, box in drawn.words:
        if text.get_text().strip():
            area = text.get_window_extent(renderer)
            top, bottom = drawn.height - area.y1, drawn.height - area.y0
            extents.append((text.get_text(), area.x0, area.x1, top, bottom))
            if box is not None:
                assert box.x + 3 <= area.x0 <= area.x1 <= box.x + box.width - 3, text
                assert box.y - 1 <= top <= bottom <= box.y + box.height + 1, text
            assert 20 <= area.x0 <= area.x1 <= WIDTH - 20, text
            assert 10 <= top <= bottom <= drawn.height - 4, text
            assert text.get_fontsize() >= 8.5, text
    for one, two in itertools.combinations(extents, 2):
        beside = one[2] <= two[1] or two[2] <= one[1]
        assert beside or one[4] <= two[3] + 2 or two[4] <= one[3] + 2, (one[0], two[0])
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
    words = [text.get_text() for text, _ in board(name).words]
    after = words[words.index("after") :]
    alt = draw.importlib.import_module(name).ALT.partition("After:")[2]
    assert len(re.findall(r"\d+", alt)) >= 4
    assert set(re.findall(r"\d+", alt)) <= {*after, *words}


def test_every_file_has_a_script():
    assert {path.stem for path in IMAGES.glob("*.png")} == set(draw.NAMES)


def lettered(letter, alt="One box."):
    with style():
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
    with pytest.raises(LabError, match=r"'horse'.*course_map"):
        labkit.picture("horse")
