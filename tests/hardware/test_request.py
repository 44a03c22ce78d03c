"""What a student may write for `devices`, before TensorFlow is touched."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.hardware.request import UnknownDeviceError, understand


@pytest.mark.parametrize("written", ["cpu", "CPU", " Cpu "])
def test_a_kind_may_be_written_in_capitals(written):
    assert understand(None, written) == understand(2, "cpu")
    assert understand(3, "GPU").kind == "gpu"


@pytest.mark.parametrize("kind", [list, tuple, np.array, iter])
def test_any_sequence_of_names_will_do(kind):
    assert understand(None, kind(["cpu:1", "CPU:0"])) == understand(2, ["cpu:1", "CPU:0"])


@pytest.mark.parametrize("written", [np.array([0, 1]), np.array("cpu:0"), 3, "tpu"])
def test_what_names_no_device_is_told_so(written):
    with pytest.raises(UnknownDeviceError):
        understand(None, written)
