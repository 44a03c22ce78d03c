"""Enter a host, which is a network namespace that another process holds open.

The variable LABKIT_HOSTS of a rank under MPI names the doors: the user namespace of that process
("" if it is ours), then the network namespace of each rank's host.
"""

import ctypes
import os
from collections.abc import Sequence

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
DOORS = "LABKIT_HOSTS"
INTERFACE = "eth0"  # of each host


def enter(namespace: int, kind: int = NEW_NETWORK) -> None:
    """Move this thread into the namespace of an open file."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(namespace, kind) != 0:
        raise OSError(ctypes.get_errno(), "a namespace cannot be entered")


def enter_own() -> None:
    """In a rank of gforker that has one thread and has not loaded MPI: be in its host."""
    if doors := os.environ.get(DOORS):
        user, *hosts = doors.split(":")
        for path, kind in ((user, NEW_USER), (hosts[int(os.environ["PMI_RANK"])], NEW_NETWORK)):
            if path:
                file = os.open(path, os.O_RDONLY)
                enter(file, kind)
                os.close(file)


def over_links(doors: Sequence[str]) -> dict[str, str]:
    """What MPICH needs to know: it must use the hosts' interface, and never shared memory."""
    return {
        DOORS: ":".join(doors),
        "MPIR_CVAR_NOLOCAL": "1",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": INTERFACE,
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": INTERFACE,
    }
