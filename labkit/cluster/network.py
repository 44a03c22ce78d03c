"""The network of the ranks: a private loopback, or free ports in the shared network.

TensorFlow's servers accept everybody and listen on every network interface. In a network that has
nothing but a loopback, no other process can reach them, and no other program can take their ports.

python -m labkit.cluster.network        prints why there is no private network, or nothing
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
from itertools import islice
from pathlib import Path

from labkit.kinds import LabError
from labkit.mpi.hosts import NEW_NETWORK, NEW_USER

HOST = "127.0.0.1"
PORTS = range(20_001, 30_000)  # below those that systems give to outgoing connections
DUMPABLE = 4  # PR_SET_DUMPABLE
SET_FLAGS, IS_UP = 0x8914, 1
NOT_ALLOWED = (
    "this system does not let users make network namespaces (a container's rules, or the kernel's: "
    "kernel.unprivileged_userns_clone=0, kernel.apparmor_restrict_unprivileged_userns=1)"
)
REASONS = {
    errno.EPERM: NOT_ALLOWED,
    errno.EACCES: NOT_ALLOWED,
    errno.ENOSPC: "the number of namespaces is limited "
    "(user.max_user_namespaces or user.max_net_namespaces, often 0)",
    errno.EINVAL: "this kernel is built without user or network namespaces",
}


def enter_private_network() -> str:
    """Move this process into a network of its own; "" if that worked, else why it did not.

    The process must have one thread, and end when it was refused: it may be half-way.
    """
    if sys.platform != "linux":
        return "only Linux has private networks"
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    try:
        # Root may; other users need a user namespace to create a network namespace.
        if library.unshare(NEW_NETWORK) != 0:
            if library.unshare(NEW_USER | NEW_NETWORK) != 0:
                return _reason(ctypes.get_errno())
            # The same user and group inside, so that files stay ours.
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
        library.prctl(DUMPABLE, 1)  # else the user's other processes could not follow into it
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", IS_UP))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
    except OSError as fault:
        return _reason(fault.errno or 0)
    return ""


def private_network_refused() -> str:
    """Why ranks cannot have a private network here, tried in another process; "" if they can."""
    command = [sys.executable, "-P", "-m", "labkit.cluster.network"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    try:
        answer = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as fault:
        return f"it could not be tried ({fault})"
    return answer.stdout.strip()


def free_ports(count: int) -> tuple[int, ...]:
    """So many ports that are free on this machine now."""
    # Two sessions that choose at the same moment begin at different ports.
    turn = (os.getpid() * 37) % len(PORTS)
    found = tuple(islice(filter(is_free, (*PORTS[turn:], *PORTS[:turn])), count))
    if len(found) < count:
        raise LabError(
            f"Only {len(found)} of {count} ports from {PORTS.start} to {PORTS.stop} are free on "
            "this machine. End programs that you do not need, or leave out network='shared'."
        )
    return found


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    # Not SO_REUSEADDR: what another program has only bound counts as taken.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    # A server on all addresses would let us bind where its own option allows it.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
        caller.settimeout(0.2)
        return caller.connect_ex((HOST, port)) != 0


def hold_port(address: str) -> socket.socket | None:
    """A socket that keeps others off the address, and lets this user's program listen beside it.

    gRPC, torch and multiprocessing set one of the two options. None: the port is taken already.
    """
    host, _, port = address.rpartition(":")
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((host, int(port)))
    except OSError:
        holder.close()
        return None
    return holder


def _reason(code: int) -> str:
    return REASONS.get(code) or f"the kernel refused it ({os.strerror(code)})"


if __name__ == "__main__":
    print(enter_private_network())
