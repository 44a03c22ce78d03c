"""The fork server: a process beside yours that forks the ranks, and ends all that they start.

It is warm: it has imported what programs need and run none of it, so that a rank starts at once.
Each rank gets a socket to each other rank; no other process can reach these.
When its client is gone, it ends everything and itself.
"""

import ctypes
import gc
import io
import os
import random
import re
import resource
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from labkit.cluster import in_rank
from labkit.cluster.channel import Channel
from labkit.cluster.engine import Job
from labkit.cluster.environment import set_threads
from labkit.cluster.links import Network, Samples
from labkit.cluster.network import Switch, enter_private_network, hold_port

FILES = resource.RLIMIT_NOFILE
DEATH_OF_PARENT, ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER
MOST_FILES = 4096  # 64 ranks have 2,016 pairs of sockets, half of them at one time
ENDING = 5.0  # seconds for killed processes to be gone
SAMPLE = 0.1  # seconds between two samples of the links' counters
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP}


class _Server:
    """The methods `do_…` are what the client may send."""

    def __init__(self, channel: Channel, client: int, network: str) -> None:
        self.channel, self.client, self.network = channel, client, network
        self.ranks: dict[int, tuple[int, int]] = {}  # pid: run and rank
        self.run, self.began = 0, time.time()
        self.environment: dict[str, str] = {}
        self.job: Job
        self.idle_until = float("inf")
        self.own_files: list[int] = []
        self.sockets: dict[int, dict[int, socket.socket]] = {}  # of ranks to come, to earlier ones
        self.switch: Switch | None = None
        self.samples: Samples = []
        self.counting = self.streaming = False

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
        """To the client, which may be gone: then `serve` notices."""
        with suppress(OSError):
            self.channel.send(*message)

    def sample(self, *, now: bool = False) -> None:
        """Note what the links have carried."""
        late = self.samples and time.monotonic() >= self.samples[-1][0] + 0.9 * SAMPLE
        if self.switch and self.counting and (now or late):
            self.samples.append((time.monotonic(), self.switch.counters()))
            if self.streaming:
                self.send("sample", self.run, *self.samples[-1])

    def do_network(self, network: Network | None) -> None:
        """Make these hosts and links in place of those before; report why they cannot be had."""
        if self.switch is not None:
            self.switch.close()
            self.switch = None
        why = ""
        try:
            self.switch = None if network is None else Switch(network)
        except OSError as fault:
            why = str(fault)
        self.send("network", why)

    def do_run(self, run: int, environment: dict[str, str], job: Job, streams: bool) -> None:
        """A new run; what follows belongs to it. Import what its ranks will need."""
        self.run, self.environment, self.job = run, environment, job
        self.samples.clear()
        self.counting, self.streaming = True, streams
        self.sample(now=True)
        before = len(sys.modules)
        gc.disable()  # it would take a fifth of the seconds of an import
        in_rank.preload(("cloudpickle", *job.modules))
        gc.enable()
        if len(sys.modules) != before:
            set_threads()  # what it looks up, ranks need not
            gc.collect()
            gc.freeze()  # a collection in a rank would copy every page of these objects

    def do_fork(self, rank: int) -> None:
        """Fork a rank."""
        files, self.channel.files = self.channel.files[:4], self.channel.files[4:]
        links = self.sockets.pop(rank, {})
        ranks = len(self.job.environment)
        for other in range(rank + 1, ranks):
            links[other], self.sockets.setdefault(other, {})[rank] = self.connected(rank, other)
        parent = os.getpid()
        gc.disable()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for file in self.own_files:
                os.close(file)
            _close(self.sockets.values())
            if self.switch is not None:
                self.switch.move_into(self.switch.network.hosts[rank])
            in_rank.connections = rank, links
            held = self.job.addresses[rank] if self.network == "shared" else ""
            _be_rank(rank, self.environment, self.job, held, files, parent)
        gc.enable()
        for file in files:
            os.close(file)
        _close([links])
        self.ranks[pid] = self.run, rank

    def connected(self, one: int, other: int) -> tuple[socket.socket, socket.socket]:
        """The two ends between two ranks: over the links of their hosts, if they have any."""
        if self.switch is None:
            return socket.socketpair()
        hosts = self.switch.network.hosts
        return self.switch.connect(hosts[one], hosts[other])

    def do_signal(self, rank: int, what: str) -> None:
        """Kill or pause a rank, with all of its group."""
        for pid in self.pids(rank):
            _signal_group(pid, SIGNALS[what])

    def do_stacks(self, ranks: list[int]) -> None:
        """Ask ranks where they are, and report which cannot answer because they are paused."""
        for rank in ranks:
            for pid in self.pids(rank):
                if not in_rank.ask_stack(pid):
                    self.send("paused", self.run, rank)

    def do_stop(self, run: int) -> None:
        """End all that the run has started; report what the links have carried."""
        self.sample(now=True)
        _close(self.sockets.values())
        self.sockets.clear()
        self.end_ranks()
        _remove_semaphores(self.began)
        self.send("stopped", run, self.samples)
        self.counting = False

    def do_idle(self, seconds: float) -> None:
        """End when nothing is asked for so long."""
        self.idle_until = time.monotonic() + seconds

    # Processes. Only their parent signals them: a pid is not reused before its parent reaps it.

    def pids(self, rank: int) -> list[int]:
        """The process of a rank of this run, if it is there."""
        return [pid for pid, known in self.ranks.items() if known == (self.run, rank)]

    def end_ranks(self) -> None:
        """Kill ranks and all that they have started, until nothing is left."""
        until = time.monotonic() + ENDING
        while time.monotonic() < until:
            for pid in self.ranks:
                _signal_group(pid, signal.SIGKILL)
            # Also those that a dead rank has left to this process (Linux).
            children = Path(f"/proc/self/task/{os.getpid()}/children")
            for pid in map(int, children.read_text().split() if children.exists() else ()):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not self.reap():
                return
            time.sleep(0.002)

    def reap(self) -> bool:
        """Report which ranks have ended, and leave no zombie. False: there are no children."""
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


def _be_rank(
    rank: int, environment: Mapping[str, str], job: Job, held: str, files: list[int], parent: int
) -> NoReturn:
    """Be a rank until the end. `files`: stdout, stderr, channel, stacks."""
    code = 70
    try:
        out, err, messages, stacks = files
        _end_with(parent)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for file, standard in ((out, 1), (err, 2)):
            os.dup2(file, standard)
            os.close(file)
        _be_fresh(environment)
        holder = hold_port(held) if held else None
        link = _ChannelLink(Channel(socket.socket(fileno=messages)))
        code = in_rank.run(rank, job, {}, stacks, link)
        del holder
    except BaseException:  # noqa: BLE001 (nothing above could catch it)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _close(links: Iterable[dict[int, socket.socket]]) -> None:
    """Close the ends of other ranks: when their process ends, its peers must notice."""
    for sockets in links:
        for end in sockets.values():
            end.close()


def _be_fresh(environment: Mapping[str, str]) -> None:
    """Be like a Python that has just started, with this environment."""
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
    """Lead a session, and end with the parent."""
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_OF_PARENT, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(os.getpid(), signal.SIGKILL)


def _ended(leaders: Mapping[int, object]) -> tuple[int, int]:
    """A child that has ended, and its exit code; zeros, if there is none."""
    if hasattr(os, "waitid"):
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None and found.si_pid in leaders:
            # While its leader is not reaped, the number of the group is not reused.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(found.si_pid, signal.SIGKILL)
    pid, status = os.waitpid(-1, os.WNOHANG)
    return pid, os.waitstatus_to_exitcode(status) if pid else 0


def _remove_semaphores(since: float) -> None:
    """Remove those of multiprocessing that killed programs left: no process has them open."""
    mine = {}
    for file in Path("/dev/shm").glob("sem.mp-*"):  # noqa: S108
        with suppress(OSError):
            status = file.stat()
            if status.st_ctime > since and status.st_uid == os.getuid():
                mine[status.st_ino] = file
    for maps in Path("/proc").glob("[0-9]*/maps") if mine else ():
        with suppress(OSError):
            for number in re.findall(rb" (\d+) +/dev/shm/", maps.read_bytes()):
                mine.pop(int(number), None)
    for file in mine.values():
        with suppress(OSError):
            file.unlink()


def _signal_group(pid: int, number: int) -> None:
    """To the process and its group, which one that was forked just now has not made yet."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _leave(*_: object) -> None:
    raise SystemExit(0)


def main(arguments: list[str]) -> None:
    """Serve the client at the other end of the file with this number."""
    number, client, network = int(arguments[0]), int(arguments[1]), arguments[2]
    channel = Channel(socket.socket(fileno=number))
    os.set_inheritable(number, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    soft, hard = resource.getrlimit(FILES)
    resource.setrlimit(FILES, (max(soft, min(hard, MOST_FILES)), hard))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1)
    refused = enter_private_network() if network == "own" else ""
    server = _Server(channel, client, network)
    server.send("hello", refused)
    if refused:
        return
    signal.signal(signal.SIGTERM, _leave)  # SIGTERM ends it by way of the `finally`
    try:
        server.serve()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server.end_ranks()
        _remove_semaphores(server.began)
        shutil.rmtree(arguments[3], ignore_errors=True)  # the client may be gone


if __name__ == "__main__":
    main(sys.argv[1:])
