"""The hybrid cube mesh of a DGX-1: two squares with diagonals, joined corner by corner."""

from __future__ import annotations

from _machine import Links, board

from labkit.views.sketch import Sketch

ALT = (
    "A DGX-1 with eight V100. GPUs 0 to 3 are at processor 0, GPUs 4 to 7 at processor 1, two at "
    "each PCIe switch. NVLinks of a GPU: GPU 0 has one to GPU 1, one to GPU 2, two to GPU 3 and "
    "two to GPU 4. In the square of GPUs 0 to 3 each has a link to each other one, also in that of "
    "4 to 7; between the squares there are links from 0 to 4, 1 to 5, 2 to 6 and 3 to 7."
)


def draw() -> Sketch:
    square = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
    mesh = square | {(a + 4, b + 4): count for (a, b), count in square.items()}
    mesh |= {(0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1}
    links = Links({(f"GPU {a}", f"GPU {b}"): count for (a, b), count in mesh.items()})
    for gpu in range(8):
        links[f"GPU {gpu}", f"PCIe switch {gpu // 2}"] = 1
    for switch in range(4):
        links[f"CPU {switch // 2}", f"PCIe switch {switch}"] = 1
    links["CPU 0", "CPU 1"] = 1
    return board("DGX-1 V100", links, "a DGX-1 (nvidia-smi topo, microway.com)")
