"""The driver itself: it sees what a reader would complain of."""

from __future__ import annotations

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

# A picture with a left half of this colour (None: the page shines through), with words for it.
PICTURE = """
import base64, io
from IPython.display import HTML, display
from PIL import Image

def show(colour, alt=""):
    whole, file = Image.new("RGBA", (200, 100), "black"), io.BytesIO()
    whole.paste(Image.new("RGBA", (100, 100), colour or (0, 0, 0, 0)))
    whole.save(file, "png")
    coded = base64.b64encode(file.getvalue()).decode()
    display(HTML(f'<img alt="{alt}" src="data:image/png;base64,{coded}">'))
"""
HTML = "from IPython.display import HTML; HTML({!r})"
TABLE = "<table><tr><td {}>words</td></tr></table>"

BAD = [
    new_code_cell(PICTURE + "show('white', alt='nothing is wrong with it')"),
    new_code_cell("show('white')"),
    new_code_cell("show(None, alt='on nothing')"),
    new_code_cell(HTML.format('<img alt="gone" src="/files/gone.png">')),
    new_code_cell(HTML.format(TABLE.format('style="color: #777; background: #888"'))),
    new_code_cell(HTML.format(TABLE.format('style="color: black"'))),
    new_code_cell("show('black', alt='black on black')"),
    new_code_cell("1 / 0"),
    new_code_cell("'never reached'"),
]
DEADLY = [new_code_cell("import os; os._exit(1)")]


def test_every_fault_is_seen(lab):
    nbformat.write(new_notebook(cells=BAD), lab.folder / "bad.ipynb")
    lab.open("bad.ipynb")
    assert lab.run_all(90)
    assert lab.ask("figureCount") == 5
    figures = [fault.split(" (")[0] for fault in lab.ask("figureFaults")]
    assert figures == [
        "cell 2, img: has no text for who cannot see it",
        "cell 3, img: is transparent, so one theme or the other shows through it",
        "cell 4, img: could not be loaded",
        "cell 7, img: every pixel is the same",
    ]
    for theme, cells in (("Dark", ["cell 5", "cell 6"]), ("Light", ["cell 5"])):
        lab.theme(f"JupyterLab {theme}")
        assert [fault.split(":")[0] for fault in lab.ask("contrastFaults")] == cells
    assert lab.ask("faults") == [
        "code cell 8: ZeroDivisionError: division by zero",
        "code cell 9 did not run",
    ]
    assert any("gone.png: 404" in fault for fault in lab.faults)
    lab.close_notebook()


def test_a_kernel_that_dies_is_seen_although_jupyterlab_restarts_it(lab):
    nbformat.write(new_notebook(cells=DEADLY), lab.folder / "deadly.ipynb")
    lab.open("deadly.ipynb")
    lab.run_all(60)
    assert any(fault.startswith("the kernel was") for fault in lab.ask("faults"))
    lab.close_notebook()
