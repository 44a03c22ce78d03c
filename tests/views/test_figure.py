"""A picture is the same bytes every time, says what it shows, and leaves matplotlib as it was."""

import base64
import io
import subprocess
import sys

import matplotlib as mpl
import pytest
from PIL import Image

from labkit.kinds import modelled
from labkit.views.figure import OKABE_ITO, Picture, figure, look, picture, style


def drawn(title="one"):
    with style():
        chart = figure(4, 2)
        axes = chart.add_subplot(title=title)
        for index in range(3):
            axes.plot([1, 2, 4], [1, 2, index], **look(index).line)
    return chart


def pixels(shown):
    return Image.open(io.BytesIO(shown.png)).convert("RGB")


def test_drawing_twice_gives_the_same_bytes():
    assert picture(drawn(), alt="a").png == picture(drawn(), alt="a").png


def test_the_file_holds_no_date_and_no_software():
    assert Image.open(io.BytesIO(picture(drawn(), alt="a").png)).info.keys() <= {"gamma", "dpi"}


def test_another_drawing_gives_other_bytes():
    assert picture(drawn("one"), alt="a").png != picture(drawn("two"), alt="a").png


def test_it_is_twice_as_fine_as_the_page_and_opaque():
    shown = picture(drawn(), alt="a")
    assert pixels(shown).size == (800, 400)
    assert shown.width == 400
    assert "transparency" not in Image.open(io.BytesIO(shown.png)).info


def test_a_light_frame_sets_it_off_from_a_dark_page():
    image = pixels(picture(drawn(), alt="a"))
    right, bottom = image.width - 1, image.height - 1
    edge = {image.getpixel(at) for at in ((0, 0), (right, 0), (0, bottom), (right, bottom))}
    assert len(edge) == 1
    assert min(edge.pop()) < 230
    assert image.getpixel((8, 8)) == (255, 255, 255)


def test_the_kind_is_printed_below_and_takes_room():
    plain, kinded = picture(drawn(), alt="a"), picture(drawn(), alt="a", kind=modelled("a guess"))
    assert pixels(kinded).height > pixels(plain).height
    strip = pixels(kinded).crop((8, pixels(plain).height, 792, pixels(kinded).height - 8))
    assert strip.getextrema()[0][0] < 160


def test_a_long_kind_is_wrapped_and_not_cut():
    words = modelled("very long formula " * 12)
    short = pixels(picture(drawn(), alt="a", kind=modelled("x"))).height
    assert pixels(picture(drawn(), alt="a", kind=words)).height > short + 60


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_a_picture_without_words_is_refused(alt):
    with pytest.raises(ValueError, match="alt"):
        picture(drawn(), alt=alt)


def test_a_notebook_gets_the_png_its_words_and_its_width():
    shown = picture(drawn(), alt="Three lines.")
    data, metadata = shown._repr_mimebundle_(include=None, exclude=None)
    assert data["text/plain"] == repr(shown) == "Three lines."
    assert base64.b64decode(data["image/png"]) == shown.png
    assert metadata["image/png"] == {"width": 400, "alt": "Three lines."}


def test_save_writes_the_same_bytes(tmp_path):
    shown = picture(drawn(), alt="a")
    shown.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == shown.png


def test_the_readers_own_settings_neither_change_a_figure_nor_are_changed():
    wanted = picture(drawn(), alt="a").png
    with mpl.rc_context({"font.size": 30, "savefig.bbox": "tight", "xtick.major.size": 20}):
        before = dict(mpl.rcParams)
        assert picture(drawn(), alt="a").png == wanted
        assert dict(mpl.rcParams) == before


def test_drawing_touches_no_pyplot():
    code = (
        "import sys\n"
        "from labkit.views.figure import figure, picture, style\n"
        "with style():\n    chart = figure(2, 1)\n    chart.add_subplot()\n"
        "picture(chart, alt='a')\n"
        "print('matplotlib.pyplot' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_importing_the_view_loads_no_matplotlib():
    code = "import sys, labkit.views.figure; print('matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_neighbouring_series_differ_without_colour():
    for index in range(6):
        one, two = look(index), look(index + 1)
        assert one.marker != two.marker
        assert one.hatch != two.hatch
        assert one.dash != two.dash
        assert one.color in OKABE_ITO.values()


def test_a_picture_is_equal_to_itself_drawn_again():
    assert picture(drawn(), alt="a") == Picture(picture(drawn(), alt="a").png, "a")
