"""Start MPICH's gforker without the shared memory that an earlier run has left, and leave none.

python -I -S gforker.py mpiexec.gforker -n 4 ... becomes this mpiexec.

MPICH's ranks meet in shared memory that is named after the run, and gforker names a run after its
own process id, nothing else. Ranks that are killed leave that memory behind, messages and all. When
the system gives their id out again, the new ranks find the old messages: they fail in MPI_Init
("invalid bandwidth", "Message truncated"), read what was never sent to them, or hang.
"""

import os
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

try:
    # What multiprocessing.shared_memory stands on.
    import _posixshmem  # type: ignore[import-not-found]
except ImportError:  # no POSIX, no gforker
    _posixshmem = None


def command_for(mpiexec: str) -> list[str]:
    """The command that starts this mpiexec: gforker by way of this file, others as they are.

    >>> command_for("/usr/bin/mpiexec")
    ['/usr/bin/mpiexec']
    """
    if "gforker" not in Path(mpiexec).resolve().name:
        return [mpiexec]
    # Alone, without this folder and without site: it is there in an instant.
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), mpiexec]


def memory_of(pid: int) -> str:
    """The name of the memory in which the ranks of the gforker with this process id meet.

    >>> memory_of(31001)
    '/mpich_shm_141af0c6_0'
    """
    number = 2166136261  # MPICH hashes the run's name by FNV
    for letter in f"kvs_{pid}_0".encode():
        number = (number ^ letter) * 16777619 % 2**32
    return f"/mpich_shm_{number:x}_0"


def clear(pid: int) -> None:
    """Remove what the gforker with this id has left. Ranks that have it open keep it."""
    if _posixshmem is not None:
        with suppress(OSError):  # there is none, or it is another user's
            _posixshmem.shm_unlink(memory_of(pid))


def exit_with_parent(parent: int, folder: Path) -> None:
    """End this rank soon after the process that it works for, and remove what they have left.

    A kernel that is killed stops no process, and mpiexec does not notice: each rank checks itself.
    """
    launcher = os.getppid()

    def watch() -> None:
        with suppress(OSError):  # it has ended, or another user's has its number
            while True:
                os.kill(parent, 0)
                time.sleep(1.0)
        clear(launcher)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    clear(os.getpid())
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, mpiexec must not
        signal.signal(number, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
