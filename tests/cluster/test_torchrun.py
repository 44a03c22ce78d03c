"""A torchrun that ends by force leaves no rank behind."""

import pytest

import labkit
from tests.cluster.leftovers import MARK, gone, new_mark
from tests.cluster.test_frameworks import TIMEOUT, cluster

RANKS = """
import os, pathlib, signal, sys, time

folder = pathlib.Path(sys.argv[1])
(folder / os.environ["RANK"]).touch()
while len(list(folder.iterdir())) < 2:
    time.sleep(0.01)
if os.environ["RANK"] == "0":
    os.kill(os.getppid(), signal.SIGKILL)
signal.pause()
"""


def test_no_rank_outlives_a_torchrun_that_was_killed(tmp_path):
    script, folder, mark = tmp_path / "ranks.py", tmp_path / "began", new_mark()
    script.write_text(RANKS)
    folder.mkdir()
    with cluster("torch", 1, variables={MARK: mark}) as c, pytest.raises(labkit.LabError):
        c.run_script("torchrun", "--nproc-per-node=2", script, folder, timeout=TIMEOUT, show=False)
    assert len(list(folder.iterdir())) == 2, "both ranks had begun"
    assert gone(mark)
