"""Views that play again from a saved notebook, and those of the committed ones."""

import json
from pathlib import Path

import pytest

from labkit import collectives
from labkit.kit import saved_views
from labkit.views.embed import modules

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.fixture
def saved(monkeypatch):
    """The output of a cell that shows a player, as `labkit notebooks` saves it."""
    monkeypatch.setenv("LABKIT_PICTURES", "still")
    player = collectives.run(collectives.programs.ring_all_reduce, ranks=4).player()
    data, metadata = player._repr_mimebundle_()
    return json.loads(json.dumps({"data": data, "metadata": metadata})), player


def test_a_saved_player_is_the_live_one_again(saved):
    output, player = saved
    assert list(output["data"]) == ["text/plain", "image/png"]
    again = saved_views.html(output)
    run = output["metadata"]["labkit"]["options"]["data"]
    assert run in again
    assert run in player.html()


def test_an_output_without_a_view_has_none():
    assert saved_views.html({"output_type": "stream", "text": "a line"}) is None


def views():
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                alt = output.get("metadata", {}).get("image/png", {}).get("alt", "")
                yield path.stem, alt, output.get("metadata", {}).get("labkit")


def test_each_player_of_the_lectures_is_saved_with_its_view():
    without = [
        (name, alt[:60])
        for name, alt, view in views()
        if alt.startswith("Animation of") and view is None
    ]
    assert without == []


def test_the_code_of_each_saved_view_is_still_there():
    code = {view["code"] for _, _, view in views() if view}
    assert {"player", "pipeline", "panel"} <= code
    assert all(modules(one) for one in code)
