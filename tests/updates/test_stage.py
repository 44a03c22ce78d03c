"""The parameter server to watch: what the page gets of each run."""

import base64
import gzip
import json
from itertools import pairwise

import pytest

from labkit import LabError, updates
from labkit.updates.stage import MODES, SHOWN


def test_the_view_offers_every_mode_and_straggler_and_needs_no_kernel():
    view = updates.parameter_server(slow=(1, 4))
    html = view.html()
    assert html == updates.parameter_server(slow=(1, 4)).html()
    assert len(html) < 80_000
    (line,) = [one for one in html.split("\n") if '"data": "' in one]
    data = json.loads(gzip.decompress(base64.b64decode(line.split('"data": "')[1].split('"')[0])))
    assert [(one["mode"], one["slow"]) for one in data["runs"]] == [
        (mode, slow) for slow in (1, 4) for mode in MODES
    ]
    assert data["kind"].startswith("modelled")
    for run in data["runs"]:  # each worker computes, or waits, until the end
        for worker in range(4):
            own = [row for row in run["gradients"] if row[0] == worker]
            assert own[0][3] == 0
            assert own[-1][3] < SHOWN <= own[-1][-1]
            assert all(before[-1] == after[3] for before, after in pairwise(own))
        assert SHOWN - 10 < run["losses"][-1][0] <= SHOWN
    with pytest.raises(LabError, match="slow"):
        updates.parameter_server(slow=(0.5,))
