"""Network namespaces of Linux: a private network for the ranks, and hosts with links inside it.

TensorFlow's servers accept everybody and listen on every network interface. In a network that has
nothing but a loopback, no other process can reach them, and no other program can take their ports.

A host is a network namespace, a link a cable with a rate. The fork server makes them inside its
private network, and holds the namespaces by open files alone: when it ends, however it ends, the
kernel removes namespaces, cables and switches.

Written with netlink messages, because every Python that runs a fork server can send them: the
environments of other frameworks have no package for it, and the programs `ip` and `tc` lose the
right to change the network when an ordinary user starts them from a user namespace.

python -m labkit.cluster.links.namespaces        prints why there is no private network, or nothing
"""

import fcntl
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from labkit.cluster.links.network import INTERFACE, Network
from labkit.linux import DUMPABLE, NEW_NAME, NEW_NETWORK, call, enter_namespaces

SET_FLAGS, IS_UP = 0x8914, 1
REFUSED = (
    "this system does not let users make network namespaces (a container's rules, or the kernel's "
    "settings unprivileged_userns_clone, apparmor_restrict_unprivileged_userns, "
    "max_user_namespaces, max_net_namespaces)"
)
NEW_LINK, DELETE_LINK, NEW_ADDRESS, NEW_NEIGHBOUR, NEW_QUEUE = 16, 17, 20, 28, 36
REQUEST, ACKNOWLEDGE, CREATE, EXCLUSIVE, REPLACE = 1, 4, 0x400, 0x200, 0x100
HARDWARE, NAME, MASTER, LINK_INFO, NAMESPACE, SEGMENTS = 1, 3, 10, 18, 28, 40  # of a link (IFLA_…)
KIND, DATA, PEER = 1, 2, 1  # of LINK_INFO; of a veth's data
NESTED = 0x8000
PERMANENT = 0x80  # NUD_PERMANENT
BUCKET, BURST = 1, 6  # of a token bucket (TCA_TBF_PARMS, …_BURST)
ETHERNET = 1
PACING_RATE, PACE = 47, 0.90  # SO_MAX_PACING_RATE; what headers leave of the rate
UNSENT = 25  # TCP_NOTSENT_LOWAT
PACKET = 1514  # bytes of the largest frame
# What a link holds before it drops. Long queues delay the small messages that start a transfer.
QUEUE_SECONDS = 0.02
LEAST_QUEUE = 256 * 1024
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")  # of the namespace that reads it


def enter_private_network() -> str:
    """Move this process into a network of its own. Returns "" or why that was refused.

    The process must have a single thread, and must end if it was refused: it may be half-way.
    """
    if sys.platform != "linux":
        return "only Linux has private networks"
    try:
        enter_namespaces(NEW_NETWORK)
        # Else the user's other processes could not follow into it.
        call("prctl", DUMPABLE, 1)
        _set_up("lo")
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError:
        return REFUSED
    return ""


def private_network_refused() -> str:
    """Returns why ranks cannot have a private network here, or "". Another process tries it."""
    command = [sys.executable, "-P", "-m", "labkit.cluster.links.namespaces"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    try:
        answer = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as fault:
        return f"it could not be tried ({fault})"
    return answer.stdout.strip()


class Switch:
    """The hosts of a network, made in the private network of this process."""

    def __init__(self, network: Network) -> None:
        """OSError: the kernel refuses."""
        self.network = network
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.hosts: list[int] = []
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        racks = max(self.network.racks) + 1
        with _Netlink() as kernel:
            for rack in range(racks):
                kernel.add_bridge(f"rack{rack}")
            if racks > 1:
                kernel.add_bridge("core")
                for rack in range(racks):
                    kernel.add_cable(f"up{rack}", f"rack{rack}", f"down{rack}")
                    kernel.plug(f"down{rack}", "core")
                    for end in (f"up{rack}", f"down{rack}"):
                        kernel.limit(end, self.network.uplink)
            for host, rate in enumerate(self.network.rates):
                self.hosts.append(self._new_namespace())
                rack = self.network.racks[host]
                kernel.add_cable(f"host{host}", f"rack{rack}", INTERFACE, host, self.hosts[-1])
                kernel.limit(f"host{host}", rate)
        for host, rate in enumerate(self.network.rates):
            with self.inside(host), _Netlink() as kernel:
                with suppress(OSError):  # as the machine has it, where that cannot be changed
                    CONGESTION.write_text("reno", encoding="ascii")
                for name in ("lo", INTERFACE):
                    _set_up(name)
                kernel.add_address(INTERFACE, self.network.addresses[host], prefix=16)
                # Neighbours that hosts ask for themselves fill a table of the whole machine, of
                # 1,024 places: 33 hosts have more, and would leave it none.
                for other, address in enumerate(self.network.addresses):
                    if other != host:
                        kernel.add_neighbour(INTERFACE, address, _hardware(other))
                kernel.limit(INTERFACE, rate)

    @contextmanager
    def inside(self, host: int) -> Iterator[None]:
        """Move this thread into a host for a block. Sockets made there belong to the host."""
        call("setns", self.hosts[host], NEW_NETWORK)
        try:
            yield
        finally:
            call("setns", self.home, NEW_NETWORK)

    def connect(self, first: int, second: int) -> tuple[socket.socket, socket.socket]:
        """Returns the ends of a TCP connection of two hosts, or of a socket pair in a host."""
        if first == second:
            return socket.socketpair()
        pace = int(PACE * self.network.between(first, second) / 8)
        with self.inside(first):
            listener = socket.create_server((self.network.addresses[first], 0), backlog=1)
        with listener:
            listener.settimeout(10.0)
            with self.inside(second):
                theirs = socket.create_connection(listener.getsockname(), timeout=10.0)
            ours, _ = listener.accept()
        for end in (ours, theirs):
            # A message waits for no acknowledgement of the message before it.
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # What the kernel holds cannot be overtaken by a short message.
            end.setsockopt(socket.IPPROTO_TCP, UNSENT, 1 << 17)
            # Evenly, below the link's rate: else a short message would queue behind a long one.
            end.setsockopt(socket.SOL_SOCKET, PACING_RATE, pace)
        return ours, theirs

    def counters(self) -> dict[str, tuple[int, int]]:
        """Returns the bytes that came from each host and rack so far, and that went to it."""
        found, text = {}, Path("/proc/self/net/dev").read_text(encoding="ascii")
        lines = re.findall(r"^ *(host|up)(\d+):(.*)$", text, re.MULTILINE)
        for kind, number, numbers in lines:
            values = numbers.split()
            came, went = int(values[0]), int(values[8])  # at the switch's end of the cable
            name = "host" if kind == "host" else "rack"
            found[f"{name} {number}"] = (came, went) if kind == "host" else (went, came)
        return found

    def move_into(self, host: int) -> None:
        """Move this rank into a host for good, and close the files of the other hosts."""
        call("setns", self.hosts[host], NEW_NETWORK)
        # Horovod asks for the address of the host's name where HOROVOD_GLOO_IFACE should decide.
        call("unshare", NEW_NAME)
        socket.sethostname(self.network.addresses[host])
        self._forget()

    def close(self) -> None:
        """Remove hosts, links and switches."""
        with _Netlink() as kernel:
            for _, name in socket.if_nameindex():
                if name.startswith(("host", "up", "rack", "core")):  # the other ends go with them
                    kernel.remove(name)
        self._forget()

    def _forget(self) -> None:
        for file in (*self.hosts, self.home):
            os.close(file)

    def _new_namespace(self) -> int:
        call("unshare", NEW_NETWORK)
        try:
            return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            call("setns", self.home, NEW_NETWORK)


class _Netlink:
    """Requests to the kernel's routing tables, one at a time."""

    def __enter__(self) -> Self:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self._socket.settimeout(5.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        self._ask(NEW_LINK, _link(up=True) + _name(name) + _kind("bridge"))

    def add_cable(
        self, name: str, switch: str, peer: str, host: int = 0, namespace: int = -1
    ) -> None:
        """Add a cable from a switch to a second end, here or in the namespace of a host."""
        end = _link() + _name(peer)
        if namespace >= 0:
            end += _attribute(NAMESPACE, struct.pack("i", namespace))
            end += _attribute(HARDWARE, _hardware(host))
        body = _link(up=True) + _name(name) + _attribute(MASTER, _index(switch))
        self._ask(NEW_LINK, body + _kind("veth", _attribute(PEER | NESTED, end)))

    def plug(self, name: str, switch: str) -> None:
        """Join an end that is here to a switch."""
        body = _link(up=True) + _name(name) + _attribute(MASTER, _index(switch))
        self._ask(NEW_LINK, body, flags=0)

    def remove(self, name: str) -> None:
        self._ask(DELETE_LINK, _link() + _name(name), flags=0)

    def add_address(self, name: str, address: str, prefix: int) -> None:
        number = socket.inet_aton(address)
        head = struct.pack("BBBBi", socket.AF_INET, prefix, 0, 0, socket.if_nametoindex(name))
        self._ask(NEW_ADDRESS, head + _attribute(1, number) + _attribute(2, number))

    def add_neighbour(self, name: str, address: str, hardware: bytes) -> None:
        head = struct.pack("=BxxxiHxx", socket.AF_INET, socket.if_nametoindex(name), PERMANENT)
        body = _attribute(1, socket.inet_aton(address)) + _attribute(2, hardware)
        self._ask(NEW_NEIGHBOUR, head + body)

    def limit(self, name: str, rate: float) -> None:
        """Limit what leaves by this end to so many bits a second, with a token bucket."""
        speed = int(rate / 8)
        burst = max(2 * PACKET, speed // 1000)  # more would be sent at once, at no rate
        queue = max(LEAST_QUEUE, int(QUEUE_SECONDS * speed))
        rate_spec = struct.pack("=BBHhHI", 0, ETHERNET, 0, -1, 0, speed)
        parameters = rate_spec + bytes(12) + struct.pack("=III", queue, 0, 0)
        bucket = _attribute(BUCKET, parameters) + _attribute(BURST, struct.pack("I", burst))
        index = socket.if_nametoindex(name)
        body = (
            struct.pack("=BxxxiIIi", 0, index, 0, 2**32 - 1, 0)
            + _attribute(1, b"tbf\0")
            + _attribute(2, bucket)
        )
        self._ask(NEW_QUEUE, body, flags=CREATE | REPLACE)
        # Else TCP hands over 64 KiB at once where round trips are short, and what comes after, the
        # taking of a message among it, waits behind them: half a second at 1 Mbit/s. A packet at a
        # time: every packet has headers, which the kernel counts.
        if burst < 1 << 16:
            segments = _attribute(SEGMENTS, struct.pack("I", 1))
            self._ask(NEW_LINK, _link() + _name(name) + segments, flags=0)

    def _ask(self, what: int, body: bytes, flags: int = CREATE | EXCLUSIVE) -> None:
        head = struct.pack("=IHHII", 16 + len(body), what, REQUEST | ACKNOWLEDGE | flags, 1, 0)
        self._socket.send(head + body)
        answer = self._socket.recv(65536)
        code = -struct.unpack_from("=i", answer, 16)[0]
        if code:
            raise OSError(code, os.strerror(code))


def _link(*, up: bool = False) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 0, IS_UP * up, IS_UP * up)


def _attribute(what: int, value: bytes) -> bytes:
    data = struct.pack("=HH", 4 + len(value), what) + value
    return data + bytes(-len(data) % 4)


def _name(name: str) -> bytes:
    return _attribute(NAME, name.encode() + b"\0")


def _hardware(host: int) -> bytes:
    """Returns the Ethernet address of a host, in the range for local use."""
    return struct.pack(">BxI", 2, host)


def _kind(name: str, data: bytes = b"") -> bytes:
    inner = _attribute(KIND, name.encode())
    inner += _attribute(DATA | NESTED, data) if data else b""
    return _attribute(LINK_INFO | NESTED, inner)


def _index(name: str) -> bytes:
    return struct.pack("I", socket.if_nametoindex(name))


def _set_up(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", name.encode(), IS_UP))


if __name__ == "__main__":
    print(enter_private_network())
