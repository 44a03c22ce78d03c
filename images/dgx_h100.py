"""A DGX H100: every GPU has 18 links to the switch, and so the same way to each other one."""

from __future__ import annotations

from _machine import Links, board

from labkit.views.sketch import Sketch

ALT = (
    "A DGX H100. GPUs 0 to 3 are at processor 0, GPUs 4 to 7 at processor 1. Each of the eight "
    "GPUs has 18 NVLinks to the NVSwitch below them, and none to another GPU."
)


def draw() -> Sketch:
    links = Links({(f"GPU {gpu}", f"CPU {gpu // 4}"): 1 for gpu in range(8)})
    links |= Links({(f"GPU {gpu}", "NVSwitch"): 18 for gpu in range(8)})
    links["CPU 0", "CPU 1"] = 1
    return board(
        "DGX H100", links, "DGX H100, 4 NVSwitch chips as one, PCIe switches left out (Bekman, "
        "ml-engineering, network/README.md)",
    )  # fmt: skip
