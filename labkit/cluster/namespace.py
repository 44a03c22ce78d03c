"""A loopback network of one's own, where the kernel of the system gives one.

TensorFlow's servers listen on every address of the machine. In a network that has nothing but a
loopback, nobody else can reach them, and nobody else can take their ports.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

__all__ = ["enter_own_network"]

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
SET_FLAGS, IS_UP = 0x8914, 1


def enter_own_network() -> str:
    """Move this process into a network of its own. Empty when it is there, else why it is not.

    It must have one thread only, and end when it was refused: it may be half-way.
    """
    if sys.platform != "linux":
        return f"{sys.platform} has no private networks"
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    try:
        # Only root may have a network; anybody may be root of nothing but that network.
        if library.unshare(NEW_NETWORK) != 0:
            if library.unshare(NEW_USER | NEW_NETWORK) != 0:
                return f"the system refuses a private network ({os.strerror(ctypes.get_errno())})"
            # The same user and group inside, so that files stay ours.
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", IS_UP))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
    except (OSError, AttributeError) as fault:
        return f"a private network could not be set up ({fault})"
    return ""
