"""Where a rank is: python -m labkit.cluster.place, under srun, prints its number, node and ports.

Slurm alone knows how it has dealt out the ranks, and only the node itself knows its free ports.
"""

from __future__ import annotations

import os
from itertools import islice

from labkit.cluster import ports
from labkit.kinds import LabError

__all__ = ["main", "read"]

MARK = "labkit-place"


def main() -> None:
    """Two ports: one for the rank, and one where all may meet if this is rank 0."""
    rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    # Ranks that look at the same moment on the same machine look at different ports.
    mine = [port for port in ports.SHARED if port % ranks == rank]
    turn = hash(os.environ.get("SLURM_STEP_ID", "0")) % len(mine)
    turned = (*mine[turn:], *mine[:turn])
    found = list(islice((port for port in turned if ports.is_free(port, "")), 2))
    print(MARK, rank, os.environ["SLURMD_NODENAME"], *found, flush=True)


def read(said: str, ranks: int) -> tuple[tuple[str, ...], str]:
    r"""The address of each rank, and where all meet.

    >>> read("labkit-place 1 b 21 23\nlabkit-place 0 a 20 22\n", 2)
    (('a:20', 'b:21'), 'a:22')
    """
    found = {}
    for line in said.splitlines():
        words = line.split()
        if len(words) == 5 and words[0] == MARK:
            found[int(words[1])] = words[2:]
    if sorted(found) != list(range(ranks)):
        raise LabError(
            f"srun started {len(found)} of {ranks} ranks that could say where they are. It said: "
            f"{said.strip()[-600:] or 'nothing'}"
        )
    addresses = tuple(f"{found[rank][0]}:{found[rank][1]}" for rank in range(ranks))
    return addresses, f"{found[0][0]}:{found[0][2]}"


if __name__ == "__main__":
    main()
