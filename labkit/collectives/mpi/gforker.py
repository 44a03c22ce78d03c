"""Start MPICH's gforker without the shared memory that an earlier run has left behind.

python -I -S gforker.py mpiexec.gforker -n 4 ... becomes this mpiexec.

MPICH's ranks meet in shared memory that is named after the run, and gforker names a run after its
own process id, nothing else. Ranks that are killed leave that memory behind, messages and all. When
the system gives their id out again, the new ranks find the old messages: they fail in MPI_Init
("invalid bandwidth", "Message truncated"), read what was never sent to them, or hang.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

try:
    # What multiprocessing.shared_memory stands on.
    import _posixshmem  # type: ignore[import-not-found]
except ImportError:  # no POSIX, no gforker
    _posixshmem = None

__all__ = ["clear", "command_for", "memory_of"]

FNV_START, FNV_TIMES = 2166136261, 16777619  # the hash that MPICH makes of a run's name
FORWARDED = (signal.SIGTERM, signal.SIGINT)
TRIES = 20  # ids in a row whose memory belongs to another user


def command_for(mpiexec: Sequence[str]) -> list[str]:
    """The command that starts this mpiexec: gforker by way of this file, others as they are.

    >>> command_for(["/usr/bin/mpiexec"])
    ['/usr/bin/mpiexec']
    """
    found = shutil.which(mpiexec[0]) or mpiexec[0]
    if "gforker" not in Path(found).resolve().name:
        return [*mpiexec]
    # Alone, without this folder and without site: it is there in an instant.
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), found, *mpiexec[1:]]


def memory_of(pid: int) -> str:
    """The name of the memory in which the ranks of the gforker with this process id meet.

    >>> memory_of(31001)
    '/mpich_shm_141af0c6_0'
    """
    number = FNV_START
    for letter in f"kvs_{pid}_0".encode():
        number = (number ^ letter) * FNV_TIMES % 2**32
    return f"/mpich_shm_{number:x}_0"


def clear(pid: int) -> bool:
    """Remove what the gforker with this id has left, if it has; False where that is not ours.

    Ranks that have it open keep it: only its name goes.
    """
    if _posixshmem is not None:
        try:
            _posixshmem.shm_unlink(memory_of(pid))
        except FileNotFoundError:
            return True
        except OSError:
            return False
    return True


def _main() -> None:
    command = sys.argv[1:]
    for _ in range(TRIES):
        if clear(os.getpid()):
            break
        # Another user's: a process with another id does it, and this one ends as that one does.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in FORWARDED}
        child = os.fork()
        if child:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os._exit(code if code >= 0 else 128 - code)
        for number, way in before.items():
            signal.signal(number, way)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; mpiexec shall not
        signal.signal(number, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    _main()
