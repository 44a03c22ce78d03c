"""notebooks/programs/: the lectures' programs as files, which run where labkit is not installed."""

import json
import re
from pathlib import Path

import pytest

from tests import forked

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
# Those of parts 5 and 6 run in the environments of other frameworks.
PROGRAMS = [path for path in sorted((NOTEBOOKS / "programs").glob("*.py")) if path.name < "50"]
MARK = "# --- The program of the lecture begins here."

# The lecture has just run them in full under nbval; here they must run without labkit.
SMALLER = {"17_resnet": ("resnet(n=9)", "resnet(n=1)"), "17_unet": ("steps=20", "steps=3")}

each = pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)


@each
def test_a_program_is_the_text_of_its_lecture(path):
    """A lecture's first program is in cells tagged `program`; 17_unet.py in `program-unet`."""
    digits, _, name = path.stem.partition("_")
    (lecture,) = NOTEBOOKS.glob(f"{digits}_*.ipynb")
    cells = json.loads(lecture.read_text(encoding="utf-8"))["cells"]

    def tagged(tag):
        tags = [(cell["metadata"].get("tags", []), "".join(cell["source"])) for cell in cells]
        return [re.sub(r"^%%writefile.*\n", "", source) for found, source in tags if tag in found]

    taught = tagged(f"program-{name}") or tagged("program")
    written = path.read_text(encoding="utf-8").partition(MARK)[2]
    assert taught
    assert "\n".join(taught).split() == written.split()


@pytest.mark.parametrize(
    "paths",
    [PROGRAMS[:1], pytest.param(PROGRAMS[1:], marks=pytest.mark.stress)],
    ids=["light", "heavy"],
)
def test_programs_run_without_labkit_and_without_a_network(paths, tmp_path):
    (tmp_path / "labkit.py").write_text("raise ImportError('not installed')", encoding="utf-8")
    alone = {
        "KERAS_HOME": str(tmp_path), "https_proxy": "http://127.0.0.1:9",
    }  # fmt: skip
    for path in paths:
        text = path.read_text(encoding="utf-8")
        now, smaller = SMALLER.get(path.stem, ("", ""))
        assert now in text
        copy = tmp_path / path.name
        copy.write_text(text.replace(now, smaller) if now else text, encoding="utf-8")
        ended = forked.run(copy, **alone)
        assert ended.code == 0, f"{path.name}: {ended.err}"
        assert ended.out.splitlines()[-1].endswith("True"), path.name
        accuracies = re.findall(r"accuracy ([\d.]+) ?%", ended.out)
        assert all(float(accuracy) > 50 for accuracy in accuracies[-1:]), path.name
