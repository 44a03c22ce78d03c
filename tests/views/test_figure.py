"""A picture is the same bytes every time, says what it shows, and leaves matplotlib as it was."""

import base64
import io

import matplotlib as mpl
import pytest
from PIL import Image

from labkit.kinds import modelled
from labkit.views.figure import Picture, figure, legend_below, look, picture, style


def drawn(title="one"):
    with style():
        chart = figure(4, 2)
        axes = chart.add_subplot(title=title)
        for index in range(3):
            axes.plot([1, 2, 4], [1, 1, index], label=f"curve {index}", **look(index).line)
        legend_below(chart, axes)
    return chart


@pytest.fixture(scope="module")
def shown():
    return picture(drawn(), alt="Three lines.")


def pixels(shown):
    return Image.open(io.BytesIO(shown.png)).convert("RGB")


def test_the_same_drawing_gives_the_same_bytes_and_another_one_others(shown):
    assert shown == picture(drawn(), alt="Three lines.")
    assert shown.png != picture(drawn("two"), alt="Three lines.").png
    assert Image.open(io.BytesIO(shown.png)).info.keys() <= {"gamma", "dpi", "Description"}


def test_it_is_twice_as_fine_as_the_page_framed_and_opaque(shown):
    image = pixels(shown)
    assert image.size == (800, 400)
    assert shown.width == 400
    assert "transparency" not in Image.open(io.BytesIO(shown.png)).info
    edge = {image.getpixel(at) for at in ((0, 0), (799, 0), (0, 399), (799, 399))}
    assert len(edge) == 1
    assert min(edge.pop()) < 230
    assert image.getpixel((8, 8)) == (255, 255, 255)


def test_the_kind_is_printed_below_and_a_long_one_is_wrapped(shown):
    short = pixels(picture(drawn(), alt="a", kind=modelled("a guess")))
    strip = short.crop((8, pixels(shown).height, 792, short.height - 8))
    assert strip.getextrema()[0][0] < 160
    long = pixels(picture(drawn(), alt="a", kind=modelled("very long formula " * 12)))
    assert long.height > short.height + 60


def test_a_picture_without_words_is_refused():
    with pytest.raises(ValueError, match="alt"):
        Picture(b"", alt=" ")


def test_a_notebook_and_a_file_get_the_png_its_words_and_its_width(shown, tmp_path):
    data, metadata = shown._repr_mimebundle_(include=None, exclude=None)
    assert data["text/plain"] == repr(shown) == "Three lines."
    assert base64.b64decode(data["image/png"]) == shown.png
    assert metadata["image/png"] == {"width": 400, "alt": "Three lines."}
    assert 'alt="&lt;&quot;"' in Picture(shown.png, '<"')._repr_mimebundle_()[0]["text/html"]
    shown.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == shown.png


def test_the_readers_own_settings_neither_change_a_figure_nor_are_changed(shown):
    with mpl.rc_context({"font.size": 30, "savefig.bbox": "tight", "xtick.major.size": 20}):
        before = dict(mpl.rcParams)
        assert picture(drawn(), alt="Three lines.").png == shown.png
        assert dict(mpl.rcParams) == before
