"""The driver itself: it sees what a reader would complain of."""

from __future__ import annotations

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.browser.lab import Lab

# A picture with a left half of this shade, opaque or not, with or without words for it.
PICTURE = """
import matplotlib.pyplot as plt
import base64, io
from IPython.display import HTML, display

def show(shade, clear=False, alt=None, frame=True):
    file = io.BytesIO()
    figure = plt.figure(figsize=(2, 1), facecolor="white")
    left = figure.add_axes([0, 0, 0.5, 1], facecolor=shade, xticks=[], yticks=[])
    left.set_frame_on(frame and not clear)
    if clear:
        figure.text(0.5, 0.5, "clear")
    figure.savefig(file, transparent=clear)
    plt.close(figure)
    words = f'alt="{alt}"' if alt else ""
    coded = base64.b64encode(file.getvalue()).decode()
    display(HTML(f'<img {words} src="data:image/png;base64,{coded}">'))
"""
TABLE = "<table><tr><td {}>words</td></tr></table>"
HTML = "from IPython.display import HTML; HTML({!r})"

GOOD = [
    new_markdown_cell("# A heading\n\nSome **words** and `code`."),
    new_code_cell(PICTURE),
    new_code_cell("show('black', alt='half black, half white')"),
    new_code_cell(HTML.format(TABLE.format(""))),
    new_code_cell("print('printed')"),
]
BAD = [
    new_code_cell(PICTURE),
    new_code_cell("show('black')"),
    new_code_cell("show('none', clear=True, alt='on nothing')"),
    new_code_cell(HTML.format('<img alt="gone" src="/files/gone.png">')),
    new_code_cell(HTML.format(TABLE.format('style="color: #777; background: #888"'))),
    new_code_cell(HTML.format(TABLE.format('style="color: black"'))),
    new_code_cell(PICTURE + "\nshow('white', alt='white on white', frame=False)"),
    new_code_cell("1 / 0"),
    new_code_cell("'never reached'"),
]
DEADLY = [new_code_cell("import os; os._exit(1)")]


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    for name, cells in {"good": GOOD, "bad": BAD, "deadly": DEADLY}.items():
        nbformat.write(new_notebook(cells=cells), folder / f"{name}.ipynb")
    with Lab(folder) as lab:
        yield lab


def test_a_good_notebook_has_no_fault_in_either_theme(opened):
    opened.open("good.ipynb")
    assert opened.run_all(90)
    assert opened.ask("figureCount") == 1
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        assert opened.ask("figureFaults") + opened.ask("contrastFaults") == []
    assert opened.ask("faults") + opened.faults == []
    opened.theme("JupyterLab Light")
    opened.close_notebook()


def test_every_fault_is_seen(opened):
    opened.open("bad.ipynb")
    assert opened.run_all(90)
    figures = opened.ask("figureFaults")
    assert "cell 2, img: has no text for who cannot see it" in figures
    assert "cell 3, img: is transparent, so one theme or the other shows through it" in figures
    assert any(fault.startswith("cell 4, img: could not be loaded") for fault in figures)
    assert "cell 7, img: every pixel is the same" in figures
    in_the_light = opened.ask("contrastFaults")
    opened.theme("JupyterLab Dark")
    in_the_dark = opened.ask("contrastFaults")
    opened.theme("JupyterLab Light")
    assert [fault.split(":")[0] for fault in in_the_light] == ["cell 5"]
    assert [fault.split(":")[0] for fault in in_the_dark] == ["cell 5", "cell 6"]
    assert opened.ask("faults") == [
        "code cell 8: ZeroDivisionError: division by zero",
        "code cell 9 did not run",
    ]
    assert any("gone.png: 404" in fault for fault in opened.faults)
    opened.close_notebook()


def test_a_kernel_that_dies_is_seen_although_jupyterlab_restarts_it(opened):
    opened.open("deadly.ipynb")
    opened.run_all(60)
    assert any(fault.startswith("the kernel was") for fault in opened.ask("faults"))
    opened.close_notebook()
