"""The fork server: a process beside yours that forks the ranks, and ends all that they start.

It is warm: it has imported what programs need without running any of it, so a rank starts at once.
Every pair of ranks gets a pair of sockets that no other process can reach.
When its client is gone, it ends everything and itself.
"""

import gc
import io
import os
import random
import resource
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from multiprocessing.process import current_process
from pathlib import Path
from typing import Any, NoReturn

from labkit.cluster.here.channel import Channel
from labkit.cluster.links.namespaces import Switch, enter_private_network
from labkit.cluster.links.network import Network
from labkit.cluster.links.traffic import Samples
from labkit.cluster.ranks import in_rank
from labkit.cluster.ranks.environment import set_threads
from labkit.cluster.ranks.ports import hold_port
from labkit.cluster.ranks.protocol import RunSpec
from labkit.linux import adopt_orphans, children, end_with_parent

FILES = resource.RLIMIT_NOFILE
MOST_FILES = 4096  # 64 ranks have 2,016 pairs of sockets, half of them at one time
ENDING = 5.0  # seconds for killed processes to be gone
SAMPLE = 0.1  # seconds between two samples of the links' counters
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP}


class _Server:
    """The client may call the methods `do_…`."""

    def __init__(self, channel: Channel, client: int, network: str) -> None:
        self.channel, self.client, self.network = channel, client, network
        self.ranks: dict[int, tuple[int, int]] = {}  # pid: run and rank
        self.run, self.pid = 0, os.getpid()
        self.environment: dict[str, str] = {}
        self.spec: RunSpec
        self.idle_until = float("inf")
        self.own_files: list[int] = []
        self.sockets: dict[int, dict[int, socket.socket]] = {}  # of ranks to come, to earlier ones
        self.switch: Switch | None = None
        self.samples: Samples = []
        self.counting = False

    def serve(self) -> None:
        """Obey the client until it is gone."""
        woken, waker = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        with selectors.PollSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            self.own_files = [self.channel.fileno(), woken, waker]
            while not self.channel.closed and time.monotonic() < self.idle_until:
                if os.getppid() != self.client:
                    return  # a fork of the client may hold its end of the channel open
                for key, _ in selector.select(SAMPLE if self.switch and self.counting else 1.0):
                    if key.fileobj is self.channel:
                        for what, *rest in self.channel.receive():
                            self.idle_until = float("inf")
                            getattr(self, f"do_{what}")(*rest)
                    else:
                        os.read(woken, 4096)
                self.reap()
                self.sample()

    def send(self, *message: object) -> None:
        """Send a message to the client. If the client is gone, `serve` notices."""
        with suppress(OSError):
            self.channel.send(*message)

    def sample(self, *, now: bool = False) -> None:
        """Sample the links' counters, if that is due."""
        late = self.samples and time.monotonic() >= self.samples[-1][0] + 0.9 * SAMPLE
        if self.switch and self.counting and (now or late):
            self.samples.append((time.monotonic(), self.switch.counters()))
            self.send("sample", self.run, *self.samples[-1])

    def do_network(self, network: Network | None) -> None:
        """Replace the hosts and links, and report why they cannot be had."""
        if self.switch is not None:
            self.switch.close()
            self.switch = None
        why = ""
        try:
            self.switch = None if network is None else Switch(network)
        except OSError as fault:
            why = str(fault)
        self.send("network", why)

    def do_run(self, run: int, environment: dict[str, str], spec: RunSpec) -> None:
        """Begin a run, to which later messages belong, and import what its ranks will need."""
        self.run, self.environment, self.spec = run, environment, spec
        self.samples.clear()
        self.counting = True
        self.sample(now=True)
        before = len(sys.modules)
        gc.disable()  # it would take a fifth of the seconds of an import
        in_rank.preload(("cloudpickle", *spec.modules))
        gc.enable()
        if len(sys.modules) != before:
            set_threads()  # what it looks up, ranks need not
            gc.collect()
            gc.freeze()  # a collection in a rank would copy every page of these objects

    def do_fork(self, rank: int) -> None:
        """Fork a rank."""
        files, self.channel.files = self.channel.files[:4], self.channel.files[4:]
        links = self.sockets.pop(rank, {})
        ranks = len(self.spec.environment)
        for other in range(rank + 1, ranks):
            links[other], self.sockets.setdefault(other, {})[rank] = self.connected(rank, other)
        gc.disable()
        pid = os.fork()
        if pid == 0:
            self.be_rank(rank, links, files)
        gc.enable()
        for file in files:
            os.close(file)
        _close([links])
        self.ranks[pid] = self.run, rank

    def be_rank(self, rank: int, links: dict[int, socket.socket], files: list[int]) -> NoReturn:
        """Be a rank, in a new process. `files` are its stdout, stderr, channel and stacks."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            out, err, messages, stacks = files
            _end_with(self.pid)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for file, standard in ((out, 1), (err, 2)):
                os.dup2(file, standard)
                os.close(file)
            _be_fresh(self.environment)
            for file in self.own_files:
                os.close(file)
            _close(self.sockets.values())
            if self.switch is not None:
                self.switch.move_into(self.switch.network.hosts[rank])
            in_rank.connections = rank, links
            holder = hold_port(self.spec.addresses[rank]) if self.network == "shared" else None
            link = _ChannelLink(Channel(socket.socket(fileno=messages)))
            code = in_rank.run(rank, self.spec, {}, stacks, link)
            del holder
        except BaseException:  # noqa: BLE001 (nothing above could catch it)
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def connected(self, rank: int, other: int) -> tuple[socket.socket, socket.socket]:
        """Returns a connection of two ranks, over the links of their hosts if they have links."""
        if self.switch is None:
            return socket.socketpair()
        hosts = self.switch.network.hosts
        return self.switch.connect(hosts[rank], hosts[other])

    def do_signal(self, rank: int, what: str) -> None:
        """Kill or pause a rank, with all of its group."""
        for pid in self.pids(rank):
            _signal_group(pid, SIGNALS[what])

    def do_stacks(self, ranks: list[int]) -> None:
        """Ask ranks for their stacks, and report which of them are paused and cannot answer."""
        for rank in ranks:
            for pid in self.pids(rank):
                if not in_rank.ask_stack(pid):
                    self.send("paused", self.run, rank)

    def do_stop(self, run: int) -> None:
        """End all that the run has started, and report what the links have carried."""
        self.sample(now=True)
        _close(self.sockets.values())
        self.sockets.clear()
        self.end_ranks()
        _remove_semaphores()
        self.send("stopped", run, self.samples)
        self.counting = False

    def do_idle(self, seconds: float) -> None:
        """End after so many seconds without a message."""
        self.idle_until = time.monotonic() + seconds

    # Processes. Only their parent signals them: a pid is not reused before its parent reaps it.

    def pids(self, rank: int) -> list[int]:
        """Returns the process of a rank of this run, if it is alive."""
        return [pid for pid, known in self.ranks.items() if known == (self.run, rank)]

    def end_ranks(self) -> None:
        """Kill ranks and all that they have started, until nothing is left."""
        until = time.monotonic() + ENDING
        while time.monotonic() < until:
            for pid in self.ranks:
                _signal_group(pid, signal.SIGKILL)
            for pid in children():  # also orphans of a dead rank
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not self.reap():
                return
            time.sleep(0.002)

    def reap(self) -> bool:
        """Report ranks that have ended, and leave no zombies. Returns whether children are left."""
        while True:
            try:
                pid, code = _ended(self.ranks)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid in self.ranks:
                self.send("ended", *self.ranks.pop(pid), code)


class _ChannelLink:
    """A rank's link to its client."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def started(self) -> bool:
        self.channel.send("started", os.getpid())
        return self._next_message()

    def finished(self, how: in_rank.How, payload: bytes) -> None:
        self.channel.send(how, payload)
        if how == "returned":
            self._next_message()

    def _next_message(self) -> bool:
        """Wait for the client's word. False: it has closed the channel."""
        while not (found := self.channel.receive()) and not self.channel.closed:
            pass
        return bool(found)


def _close(links: Iterable[dict[int, socket.socket]]) -> None:
    """Close the ends of other ranks, so that their peers notice when they end."""
    for sockets in links:
        for end in sockets.values():
            end.close()


def _be_fresh(environment: Mapping[str, str]) -> None:
    """Make this process like a Python that has just started, with this environment."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        # Nothing is buffered: a rank may be killed at any moment.
        raw: Any = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    random.seed()
    if "numpy.random" in sys.modules:  # all ranks of all runs are copies of one process
        sys.modules["numpy.random"].seed()
    gc.enable()


def _end_with(parent: int) -> None:
    """Make this process lead a session, and end with its parent."""
    os.setsid()
    end_with_parent()
    if sys.platform != "linux":
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(os.getpid(), signal.SIGKILL)


def _ended(leaders: Mapping[int, object]) -> tuple[int, int]:
    """Returns a child that has ended and its exit code, or zeros if there is none."""
    if hasattr(os, "waitid"):
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None and found.si_pid in leaders:
            # While its leader is not reaped, the number of the group is not reused.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(found.si_pid, signal.SIGKILL)
    pid, status = os.waitpid(-1, os.WNOHANG)
    return pid, os.waitstatus_to_exitcode(status) if pid else 0


def _remove_semaphores() -> None:
    """Remove multiprocessing's semaphores of killed ranks, whose names have our prefix."""
    prefix = current_process()._config["semprefix"].strip("/")  # type: ignore[attr-defined]
    for file in Path("/dev/shm").glob(f"sem.{prefix}-*"):  # noqa: S108
        with suppress(OSError):
            file.unlink()


def _signal_group(pid: int, number: int) -> None:
    """Send a signal to a process and to its group. A new fork may have no group yet."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def main(arguments: list[str]) -> None:
    """Serve the client. Arguments: the number of the socket, the client's pid, network, folder."""
    number, client, network = int(arguments[0]), int(arguments[1]), arguments[2]
    channel = Channel(socket.socket(fileno=number))
    os.set_inheritable(number, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    soft, hard = resource.getrlimit(FILES)
    resource.setrlimit(FILES, (max(soft, min(hard, MOST_FILES)), hard))
    adopt_orphans()
    # Ranks inherit it, and so does what they start with multiprocessing.
    current_process()._config["semprefix"] = f"/mp-{uuid.uuid4().hex[:8]}"  # type: ignore[attr-defined]
    refused = enter_private_network() if network == "own" else ""
    Path(arguments[3]).mkdir(0o700)
    server = _Server(channel, client, network)
    server.send("hello", refused)
    if refused:
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # it ends by way of the `finally`
    try:
        server.serve()
    finally:
        if os.getpid() == server.pid:  # no rank ends here what others have
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            server.end_ranks()
            _remove_semaphores()
            shutil.rmtree(arguments[3], ignore_errors=True)  # the client may be gone


if __name__ == "__main__":
    main(sys.argv[1:])
