"""Processes for answers, which begin clean and see a disk with only what an answer needs.

A template is a fresh Python without the lecturer's environment, submissions, or answers. It imports
what the course does, and forks for each answer. On Linux it has a root of its own, in which this
Python, labkit without the worked solutions, and the system's libraries can be read; each answer
has its own processes, network, shared memory and empty folder, and no rights of root.
"""

import ctypes
import os
import platform
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from labkit.cluster.links.namespaces import enter_private_network
from labkit.kinds import LabError
from labkit.linux import DUMPABLE, call, end_with_parent, enter_namespaces

MEMORY = 2 * 2**30  # bytes more than the template has
PROCESSES, THREADS, FILES = 64, 4096, 1024  # open files of each process
LABKIT = Path(__file__).resolve().parents[1]
SOLUTIONS = [str(LABKIT / "exercises" / name) for name in ("lectures", "truth")]
# Of clone: mounts, names, shared memory, control groups; processes.
NAMESPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x2000000
NEW_PROCESSES = 0x20000000
BIND, RECURSIVE, PRIVATE, DETACH = 0x1000, 0x4000, 0x40000, 2  # of mount and umount2
SAFE, READ_ONLY = 2 | 4 | 8, 1  # no set-user-ID, no devices, no programs; of mount_setattr
SECCOMP, NO_NEW_RIGHTS = 22, 38  # of prctl
REFUSED = (
    "Answers cannot be kept from your files and your network here: {}. Grade on another machine, "
    "or on one that holds nothing else; --unprotected goes on."
)
NOBODY, MOUNT_SETATTR = 65534, 442
HOME, SHARED = "/answer", "/dev/shm"  # noqa: S108 (of an answer alone)
# Calls that no answer needs, by their numbers: those of mounts, of keys, of another process's
# memory, of memory that no process has, and of parts of the kernel in which faults are found.
DENIED = {
    "x86_64": (0xC000003E, (165, 166, 155, 161, 304, 250, 248, 249, 101, 310, 311, 321, 298, 323,
                            319, 29)),
    "aarch64": (0xC00000B7, (40, 39, 41, 51, 265, 219, 217, 218, 117, 270, 271, 280, 241, 282,
                             279, 194)),
}  # fmt: skip
DENIED_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 447)
SOCKET = {"x86_64": 41, "aarch64": 198}
# Unix, IPv4, IPv6, and netlink, which a network namespace holds: others reach the machine's host.
FAMILIES = (1, 2, 10, 16)
LARGE = re.compile("tensorflow|keras")


class Template:
    """The process from which answers are forked, in a `with` block."""

    def __init__(
        self, imports: Iterable[str], hidden: Iterable[Path] = (), *, protected: bool = True
    ) -> None:
        self._given = protected, [*imports], [str(path.resolve()) for path in hidden]

    def __enter__(self) -> Self:
        """Start it. Raises LabError if this system gives no protection."""
        if self._given[0] and sys.platform != "linux":
            raise LabError(REFUSED.format("only Linux has namespaces"))
        self._control, theirs = socket.socketpair()
        self._root = tempfile.mkdtemp(prefix="labkit-grade-")
        protected, imports, hidden = self._given
        readable = sorted(_readable(), key=len) if protected else []
        given = theirs.fileno(), self._root, readable, hidden, imports
        start = f"import sys; sys.path.insert(0, {str(LABKIT.parent)!r}); "
        start += f"from labkit.kit import sandbox; sandbox.MEMORY = {MEMORY}; sandbox.serve{given}"
        from labkit.datasets.published import cache_folder

        kept = {"LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "LABKIT_ROUNDS"}
        environment = {name: value for name, value in os.environ.items() if name in kept}
        environment |= {
            "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin", "USER": "student",
            "HOME": HOME, "TMPDIR": HOME, "LABKIT_CACHE": str(cache_folder()),
            "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg",
            "UCX_TLS": "^sysv",  # MPI has no shared memory of System V: see DENIED
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", start], pass_fds=[theirs.fileno()], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        refused = self._control.recv(4096).decode()
        if refused != "ready":
            self.__exit__()
            raise LabError(REFUSED.format(refused or "it did not start"))
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and what it has forked."""
        self._process.kill()
        self._process.wait()
        self._control.close()
        with suppress(OSError):
            Path(self._root).rmdir()

    def fork(self, sources: Iterable[str] = ()) -> tuple[socket.socket, int]:
        """Fork a process for an answer. Returns its pipe, and a file that says what it exceeded.

        It ends when the pipe is closed. It has TensorFlow only if `sources` need it: such a fork
        takes ten times as long.
        """
        ours, theirs = socket.socketpair()
        said, says = os.pipe()
        kind = b"L" if any(map(LARGE.search, sources)) else b"S"
        socket.send_fds(self._control, [kind], [theirs.fileno(), says])
        theirs.close()
        os.close(says)
        return ours, said


def serve(
    control: int, root: str, readable: list[str], hidden: list[str], imports: list[str]
) -> None:
    """Be the template until it is killed. An empty `readable` means that it has no protection."""
    asked = socket.socket(fileno=control)
    end_with_parent()
    if readable:
        try:
            _enter_view(Path(root), readable, hidden)
        except OSError as fault:
            asked.send(f"the kernel refuses namespaces ({fault.strerror or fault})".encode())
            return
    from labkit.kit import answer  # and with it what crosses the border

    _import(one for one in imports if not LARGE.search(one))
    asked.send(b"ready")
    large = [one for one in imports if LARGE.search(one)]
    _Boxes(asked, "" if readable else root, large).serve(answer.serve)


def _import(statements: Iterable[str]) -> None:
    for statement in statements:
        with suppress(Exception):
            exec(statement, {})  # noqa: S102 (of the course's own notebooks)


@dataclass
class _Box:
    """An answer's process, its pipe, and the file for what it has exceeded."""

    pid: int
    files: list[int]
    folder: str
    exceeded: str = ""


class _Boxes:
    """The processes of answers: each ends when its judge goes, or when it takes too much."""

    def __init__(self, asked: socket.socket, root: str, large: list[str]) -> None:
        self._asked, self._root, self._imports = asked, root, large
        self._large: socket.socket | None = None  # to a template with TensorFlow
        self._boxes: list[_Box] = []
        self._waits = select.poll()
        self._waits.register(asked, select.POLLIN)
        self._ours = _own_memory(psutil.Process())
        self._namespace = -1 if root else os.open("/proc/self/ns/pid", os.O_RDONLY)

    def serve(self, work: Callable[[Any], None]) -> None:
        with suppress(OSError):  # root may: it must have its turn beside a fork bomb
            os.setpriority(os.PRIO_PROCESS, 0, -10)
        next_look = 0.0
        while True:
            events = [file for file, _ in self._waits.poll(100 if self._boxes else None)]
            if self._asked.fileno() in events:
                kind, files, _, _ = socket.recv_fds(self._asked, 1, 2)
                if not kind:
                    return  # the grader is gone
                if kind == b"L" and self._imports:
                    self._pass_on(files, work)
                else:
                    self._start(files, work)
            for box in self._boxes:
                if box.files[0] in events:
                    self._end(box)
            if look := time.monotonic() > next_look:
                next_look = time.monotonic() + 0.5
            for box in [*self._boxes]:
                if look and not box.exceeded and (text := self._exceeded(box)):
                    box.exceeded = text
                    self._end(box)
                if os.waitpid(box.pid, os.WNOHANG)[0]:
                    self._forget(box)

    def _pass_on(self, files: list[int], work: Callable[[Any], None]) -> None:
        """Pass the request on to a template that has also imported TensorFlow."""
        if self._large is None:
            self._large, theirs = socket.socketpair()
            if not os.fork():
                try:
                    end_with_parent()
                    for file in [*files, *(file for box in self._boxes for file in box.files)]:
                        os.close(file)  # else no end of theirs is ever seen
                    _import(self._imports)
                    _Boxes(theirs, self._root, []).serve(work)
                finally:
                    os._exit(0)
            theirs.close()
        socket.send_fds(self._large, [b"L"], files)
        for file in files:
            os.close(file)

    def _start(self, files: list[int], work: Callable[[Any], None]) -> None:
        folder = tempfile.mkdtemp(dir=self._root) if self._root else HOME
        if not self._root:  # the next fork is the first of new processes
            call("unshare", NEW_PROCESSES)
        if not (child := os.fork()):
            try:
                _settle(files[0], folder, protected=not self._root)
                work(socket.socket(fileno=files[0]))
            finally:
                os._exit(0)
        if not self._root:
            call("setns", self._namespace, NEW_PROCESSES)
        self._waits.register(files[0], 0)  # whether the judge is gone
        if hasattr(os, "pidfd_open"):
            files.append(os.pidfd_open(child))
            self._waits.register(files[-1], select.POLLIN)
        self._boxes.append(_Box(child, files, folder))

    def _exceeded(self, box: _Box) -> str:
        """Returns which limit it has exceeded, or "". A fork shares our memory at first."""
        total, threads, inside = 0, 0, _living(box.pid)
        for one in inside:
            with suppress(psutil.Error):
                total += max(0, _own_memory(one) - self._ours)
                threads += one.num_threads()
        if len(inside) > PROCESSES or threads > THREADS:
            return f"started more than {PROCESSES} processes or {THREADS} threads"
        return f"took more than {MEMORY / 2**30:g} GiB of memory" if total > MEMORY else ""

    def _end(self, box: _Box) -> None:
        """End its first process, and with it all others of its namespace."""
        while self._root and (below := _living(box.pid)[1:]):
            for one in below:
                with suppress(psutil.Error):
                    one.kill()
        os.kill(box.pid, signal.SIGKILL)

    def _forget(self, box: _Box) -> None:
        self._boxes.remove(box)
        for file in box.files[::2]:
            self._waits.unregister(file)
        with suppress(OSError):
            os.write(box.files[1], box.exceeded.encode())
        for file in box.files:
            os.close(file)
        if self._root:
            shutil.rmtree(box.folder, ignore_errors=True)


def _living(pid: int) -> list[psutil.Process]:
    """Returns a process and its descendants."""
    living: list[psutil.Process] = []
    with suppress(psutil.Error):
        found = psutil.Process(pid)
        for one in (found, *found.children(recursive=True)):
            with suppress(psutil.Error):
                living += [one] * (one.status() != psutil.STATUS_ZOMBIE)
    return living


def _own_memory(process: psutil.Process) -> int:
    """Returns its memory in bytes, not counting files."""
    if sys.platform != "linux":
        return int(process.memory_info().rss)
    try:
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.findall(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+)", text, re.MULTILINE)
    return 1024 * sum(map(int, found))


def _settle(pipe: int, folder: str, *, protected: bool) -> None:
    """Prepare the answer's process, which keeps only the pipe."""
    os.setsid()  # whatever it starts: the scheduler gives its session no more than ours
    end_with_parent()
    with suppress(OSError):  # as every other program
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    if protected:
        call("unshare", NAMESPACES)
        if refused := enter_private_network():
            raise OSError(refused)
        _mount("proc", "/proc", "proc", SAFE)
        for name in ("sys", "sysrq-trigger", "irq", "bus", "fs"):
            if Path("/proc", name).exists():
                _mount(f"/proc/{name}", f"/proc/{name}", None, BIND)
                _set(f"/proc/{name}", READ_ONLY)
        for path in (HOME, SHARED):
            _mount("tmpfs", path, "tmpfs", 2 | 4, "size=1g,mode=1777")
        socket.sethostname("lab")
    limit_memory()
    with suppress(OSError):  # where the machine's memory ends, an answer ends before its grader
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    tempfile.tempdir = os.environ["TMPDIR"] = os.environ["HOME"] = folder
    if protected:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
        most = 1024 + 128 * (os.cpu_count() or 1)  # with threads, which gRPC has many of
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        _give_up_rights()


def limit_memory() -> None:
    """Let this process take at most MEMORY bytes more than it has."""
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="ascii")
        most = int(status.partition("VmData:")[2].split()[0]) * 1024 + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _give_up_rights() -> None:
    machine = platform.machine()
    if os.getuid() == 0:
        # The kernel counts processes by user: each answer is one of its own, where users have
        # numbers enough. Where one user alone is mapped, there is not even nobody.
        for user in (2**30 + int.from_bytes(os.urandom(3), "big"), NOBODY):
            with suppress(OSError):
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                break
    call("prctl", NO_NEW_RIGHTS, 1, 0, 0, 0)
    call("capset", struct.pack("=Ii", 0x20080522, 0), bytes(24))
    call("prctl", DUMPABLE, 1, 0, 0, 0)  # else its own /proc/self is not its own
    if machine in DENIED:
        architecture, numbers = DENIED[machine]
        refuse, load, equal = struct.pack("=HBBI", 6, 0, 0, 0x50001), 0x20, 0x15
        program = struct.pack("=HBBI", load, 0, 0, 4) + struct.pack(
            "=HBBI", equal, 1, 0, architecture) + refuse  # fmt: skip
        program += struct.pack("=HBBI", load, 0, 0, 0)
        program += struct.pack("=HBBI", 0x35, 0, 1, 0x40000000) + refuse  # x86's other names
        for number in (*numbers, *DENIED_EVERYWHERE):
            program += struct.pack("=HBBI", equal, 0, 1, number) + refuse
        most = len(FAMILIES)
        program += struct.pack("=HBBI", equal, 0, most + 2, SOCKET[machine])
        program += struct.pack("=HBBI", load, 0, 0, 16)
        for left, family in zip(range(most, 0, -1), FAMILIES, strict=True):
            program += struct.pack("=HBBI", equal, left, 0, family)
        program += refuse + struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)
        kept = ctypes.create_string_buffer(program, len(program))
        call("prctl", SECCOMP, 2, struct.pack("@HP", len(program) // 8, ctypes.addressof(kept)))


def _enter_view(root: Path, readable: list[str], hidden: list[str]) -> None:
    """Become, in a fork, the first of new processes, on a disk with only what may be read.

    The process must have a single thread. NumPy, for example, starts others.
    """
    user = os.getuid()
    enter_namespaces(NAMESPACES | NEW_PROCESSES)
    if child := os.fork():
        os.waitpid(child, 0)
        os._exit(0)
    end_with_parent()
    _mount(None, "/", None, RECURSIVE | PRIVATE)
    _mount("tmpfs", root, "tmpfs", 0, "mode=755,size=16m")
    bound: list[str] = []
    for path in readable:
        into = Path(f"{root}{path}")
        if Path(path).exists() and not any(f"{path}/".startswith(f"{one}/") for one in bound):
            into.parent.mkdir(parents=True, exist_ok=True)
            if Path(path).is_symlink():
                into.symlink_to(Path(path).readlink())
                continue
            into.mkdir(exist_ok=True) if Path(path).is_dir() else into.touch()
            _mount(path, into, None, BIND | RECURSIVE)
            bound.append(path)
    for name in ("proc", HOME[1:], "dev", "run", "var", "etc"):
        (root / name).mkdir(exist_ok=True)
    for name in ("tmp", "var/tmp"):
        with suppress(FileExistsError):  # something that an answer may read lies there
            (root / name).symlink_to(HOME)
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost lab\n", encoding="ascii")
    people = (f"{name}:x:{one}:{one}::{HOME}:/bin/sh\n" for name, one in
              (("nobody", NOBODY), ("student", user)))  # fmt: skip
    (root / "etc" / "passwd").write_text("".join(people), encoding="ascii")
    _set(root, READ_ONLY | 2 | 4, everywhere=True)
    for path in (*SOLUTIONS, *hidden):
        if any(f"{path}/".startswith(f"{one}/") for one in bound):
            _mount("tmpfs", f"{root}{path}", "tmpfs", SAFE | READ_ONLY)
    _mount("tmpfs", root / "dev", "tmpfs", 2, "mode=755,size=64k")
    for name in ("null", "zero", "full", "random", "urandom"):
        (root / "dev" / name).touch()
        _mount(f"/dev/{name}", root / "dev" / name, None, BIND)
    (root / "dev" / "fd").symlink_to("/proc/self/fd")
    (root / "dev" / "shm").mkdir()
    _set(root / "dev", READ_ONLY)
    _mount("tmpfs", f"{root}{HOME}", "tmpfs", 2 | 4, "size=1g,mode=1777")
    _mount("proc", root / "proc", "proc", SAFE)
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", DETACH)
    os.chdir(HOME)


def _readable() -> set[str]:
    """Returns what an answer may read: Python, libraries, labkit, pictures and data sets."""
    from labkit.datasets.published import cache_folder
    from labkit.environments import FOLDER

    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    paths = {sys.prefix, sys.base_prefix, *re.findall(r" (/\S+)/[^/\s]+\.so\b", maps)}
    paths |= {f"/{name}" for name in ("usr", "bin", "sbin", "lib", "lib64")}
    paths |= {f"/etc/{name}" for name in ("ld.so.cache", "localtime", "alternatives")}
    paths |= {f"/sys/devices/system/{name}" for name in ("cpu", "node")}
    beside = ("images", "notebooks/recordings", "environments")
    paths |= {str(LABKIT), str(cache_folder()), *(str(LABKIT.parent / name) for name in beside)}
    for file in FOLDER.glob("*/.venv/pyvenv.cfg"):
        paths |= {str(Path(one).parent) for one in
                  re.findall(r"^home = (.+)$", file.read_text("utf-8"), re.MULTILINE)}  # fmt: skip
    return paths | {os.path.realpath(path) for path in paths}


def _mount(what: Any, where: Any, kind: str | None, flags: int, data: str = "") -> None:
    names = [None if one is None else os.fsencode(one) for one in (what, where, kind)]
    call("mount", *names, flags, data.encode())


def _set(path: Any, attributes: int, *, everywhere: bool = False) -> None:
    settings = (ctypes.c_uint64 * 4)(attributes)
    flags = 0x8000 if everywhere else 0
    call("syscall", MOUNT_SETATTR, -100, os.fsencode(path), flags, ctypes.byref(settings), 32)
