"""What a batch job of labkit does: keep its nodes for the runs to come, until nobody asks for any.

python -m labkit.cluster.hold FOLDER        ends when FOLDER's count stands still, or FOLDER is gone
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from labkit.cluster.alive import Watch

__all__ = ["main"]


def main() -> None:
    """Wait. The runs themselves come by srun, into the same allocation."""
    watch = Watch(Path(sys.argv[1]))
    while not watch.is_over():
        time.sleep(1.0)
    print("Nobody asks for runs any more: the job ends.", flush=True)


if __name__ == "__main__":
    main()
