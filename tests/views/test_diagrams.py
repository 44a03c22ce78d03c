"""Every diagram of the course is up to date, legible, described in words, and small."""

import ast
import functools
import itertools
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from labkit.kinds import LabError
from labkit.views import diagrams as room
from labkit.views.sketch import WIDTH, Diagram, Sketch

IMAGES = Path(__file__).parents[2] / "images"
ALL = room.diagrams()


@functools.cache
def board(name):
    return ALL[name].sketch()


@functools.cache
def extents(name):
    """Each text with the rectangle that it covers, in pixels of the page, y downwards."""
    renderer = FigureCanvasAgg(board(name).figure).get_renderer()
    out = []
    for text, box in board(name).words:
        if text.get_text().strip():
            place = text.get_window_extent(renderer)
            out.append((text.get_text(), box, place.x0, board(name).height - place.y1, place.x1,
                        board(name).height - place.y0))  # fmt: skip
    return out


@pytest.mark.parametrize("name", ALL)
def test_no_words_lie_upon_others_or_leave_the_page(name):
    placed = extents(name)
    for words, _, left, top, right, _ in placed:
        assert left >= 20, words
        assert right <= WIDTH - 20, words
        assert top >= 10, words
    height = board(name).height
    assert all(bottom <= height - 4 for *_, bottom in placed)
    for one, two in itertools.combinations(placed, 2):
        apart = one[4] <= two[2] or two[4] <= one[2] or one[5] <= two[3] + 2 or two[5] <= one[3] + 2
        assert apart, (one[0], two[0])


@pytest.mark.parametrize("name", ALL)
def test_words_stay_inside_their_boxes(name):
    for words, box, left, top, right, bottom in extents(name):
        if box is not None:
            assert left >= box.x + 3, words
            assert right <= box.x + box.width - 3, words
            assert top >= box.y - 1, words
            assert bottom <= box.y + box.height + 1, words


@pytest.mark.parametrize("name", ALL)
def test_boxes_and_frames_stay_on_the_page(name):
    for box in board(name).boxes:
        assert box.x >= 20
        assert box.x + box.width <= WIDTH - 20
        assert box.y + box.height <= board(name).height


@pytest.mark.parametrize("name", ALL)
def test_no_letters_are_too_small_to_read(name):
    assert min(text.get_fontsize() for text, _ in board(name).words) >= 8.5


@pytest.mark.parametrize("name", ALL)
def test_the_alt_text_says_what_is_seen(name):
    alt = ALL[name].alt
    assert len(alt) > 80
    assert alt.endswith(".")


def test_the_committed_images_are_those_that_the_code_draws():
    assert room.check_all(IMAGES) == []


@pytest.mark.parametrize("name", ALL)
def test_a_committed_image_is_small(name):
    assert (IMAGES / f"{name}.png").stat().st_size < 120_000


@pytest.fixture
def few(monkeypatch):
    """Two diagrams only, so that drawing all of them is quick."""
    chosen = {name: ALL[name] for name in ("one_step", "kinds")}
    monkeypatch.setattr(room, "diagrams", lambda: chosen)
    return chosen


def test_drawing_all_makes_every_file_and_then_none_is_stale(few, tmp_path):
    paths = room.draw_all(tmp_path / "new")
    assert sorted(path.name for path in paths) == ["kinds.png", "one_step.png"]
    assert room.check_all(tmp_path / "new") == []


def test_a_missing_a_changed_a_broken_and_a_foreign_file_are_named(few, tmp_path):
    room.draw_all(tmp_path)
    (tmp_path / "one_step.png").unlink()
    assert room.check_all(tmp_path) == ["one_step"]
    (tmp_path / "one_step.png").write_bytes(b"not a png")
    (tmp_path / "horse.png").write_bytes(b"x")
    assert room.check_all(tmp_path) == ["one_step", "horse"]


def test_one_changed_letter_makes_an_image_stale(few, tmp_path, monkeypatch):
    def lettered(letter):
        made = Sketch("A title", 120)
        made.box(100, 50, 120, 40, f"layer {letter}", size=9)
        return made

    few["one_step"] = Diagram("01", lambda: lettered("1"), "words")
    room.draw_all(tmp_path)
    few["one_step"] = Diagram("01", lambda: lettered("7"), "words")
    assert room.check_all(tmp_path) == ["one_step"]


def test_a_slightly_softer_rendering_is_the_same_picture(few, tmp_path):
    room.draw_all(tmp_path)
    path = tmp_path / "kinds.png"
    with Image.open(path) as file:
        soft = file.convert("RGB").point(lambda value: min(255, value + 6))
    soft.save(path)
    before = path.read_bytes()
    assert room.check_all(tmp_path) == []
    room.draw_all(tmp_path)
    assert path.read_bytes() == before, "a picture that shows the same is left alone"


def test_views_import_no_room_above_the_ground_floor():
    views = Path(room.__file__).parent
    for path in views.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit."):
                assert node.module.split(".")[1] in ("kinds", "plain", "views"), path.name


def test_an_unknown_diagram_lists_the_known_ones():
    with pytest.raises(LabError, match=r"'horse'.*course_map"):
        room.picture("horse")


def test_the_schematic_says_that_nobody_timed_it():
    shown = room.picture("why_slower")
    assert shown.kind is not None
    assert shown.kind.name == "modelled"
    assert "schematic" in shown.kind.source
