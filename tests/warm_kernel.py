"""Kernels, fork servers of ranks, and programs under test: forks of one process with TensorFlow.

Starting IPython and importing TensorFlow, Keras and matplotlib takes four seconds of CPU for each
of them; here it takes them once for all processes of pytest. Linux; elsewhere, they start cold.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "matplotlib.pyplot", "labkit.exercises",
    "labkit.training", "labkit.strategies", "labkit.cluster.here.fork_client",
    "keras", "tensorflow",
)  # fmt: skip
DOOR = "LABKIT_WARM"  # the variable with the name of its socket
SHIM = str(Path(__file__).with_name("warm_script.py"))
INLINE = "module://matplotlib_inline.backend_inline"


def launch(command: list[str], *, cwd: str, env: dict[str, str], **options: Any) -> Any:
    """In the place of jupyter_client's own: a warm kernel, where the command starts IPython's."""
    from jupyter_client.launcher import launch_kernel

    if sys.platform != "linux" or command[:3] != [sys.executable, "-m", "ipykernel_launcher"]:
        return launch_kernel(command, cwd=cwd, env=env, **options)
    return Forked("kernel", words=command[1:], cwd=str(cwd), env=env)


class Forked:
    """A forked process, with what its users need of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, what: str, files: Sequence[int] = (), **request: Any) -> None:
        self.returncode: int | None = None
        self.pid = _ask(files, be=what, **request)
        self._ended = os.pidfd_open(self.pid)

    def poll(self, seconds: float | None = 0) -> int | None:
        """Its exit status, or None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            os.close(self._ended)
            self.returncode = _ask(reap=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired("forked", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class WarmSubprocess:
    """In the place of `subprocess` in `fork_client`: fork servers of this Python start warm."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: list[str], **options: Any) -> Any:
        mine = [sys.executable, "-P", "-m", "labkit.cluster.here.fork_server"]
        if sys.platform != "linux" or command[:4] != mine:
            return subprocess.Popen(command, **options)
        channel, _client, *words = command[4:]
        files = int(channel), *2 * [options["stdout"].fileno()]
        return Forked("fork_server", files, words=words, env=options["env"])


@functools.cache
def start() -> object:
    """Start the warm process, unless there is one; this process and all that it starts find it.

    It imports when it is asked, and ends when the socket that this returns is closed.
    """
    if DOOR in os.environ:
        return None
    door, (ours, its) = socket.socket(socket.AF_UNIX), socket.socketpair()
    os.environ[DOOR] = f"labkit-warm-{os.getpid()}"
    with door, its:
        door.bind(f"\0{os.environ[DOOR]}")
        door.listen()
        files = its.fileno(), door.fileno()
        subprocess.Popen(
            [sys.executable, "-P", __file__, *map(str, files)], pass_fds=files,
            start_new_session=True, env={**os.environ, "MPLBACKEND": INLINE},
        )  # fmt: skip
    return ours


@functools.cache
def _server() -> socket.socket:
    """A connection of this process to the warm process."""
    start()
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"\0{os.environ[DOOR]}")
    return server


def _ask(files: Sequence[int] = (), **request: Any) -> int:
    server = _server()
    socket.send_fds(server, [json.dumps(request).encode()], files)
    return int(server.recv(100))


def _main(starter: int, door: int) -> None:
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # a kernel ends with it; read at import
    _serve(socket.socket(fileno=starter), socket.socket(fileno=door))


@functools.cache
def _import() -> None:
    gc.disable()  # it would take a fifth of the seconds of the imports
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a kernel would copy every page of these objects


def _serve(starter: socket.socket, door: socket.socket) -> NoReturn:
    """Fork a process for each request, and reap it for another."""
    asking = [starter, door]
    while True:
        for one in select.select(asking, [], [])[0]:
            if one is door:
                asking.append(door.accept()[0])
                continue
            asked, files, _, _ = socket.recv_fds(one, 2**20, 3)
            if asked:
                _obey(one, json.loads(asked), files, asking)
            elif one is starter:
                os._exit(0)  # to free all that was imported would take a second
            else:
                asking.remove(one)
                one.close()


def _obey(
    its: socket.socket, request: dict[str, Any], files: list[int], asking: list[socket.socket]
) -> None:
    """Do what is asked. In the forked process this does not return."""
    if "reap" in request:
        code = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        its.send(str(code).encode())
        return
    _import()
    if os.fork() == 0:
        os.setsid()
        its.send(str(os.getpid()).encode())  # not before: who asked takes it for a group
        for one in asking:
            one.close()
        *rest, out, err = files or (os.open(os.devnull, os.O_RDWR),) * 2
        for number, file in enumerate((os.open(os.devnull, os.O_RDWR), out, err)):
            os.dup2(file, number)
        variables = {**request.pop("env"), DOOR: os.environ[DOOR]}
        os.environ.clear()
        os.environ.update(variables)
        time.tzset()
        gc.enable()
        BE[request.pop("be")](*rest, **request)
        sys.exit()
    for file in files:
        os.close(file)


def _be_fork_server(channel: int, words: list[str]) -> None:
    """Be the fork server of ranks: it ends with its client, or with the warm process."""
    from labkit.cluster.here import fork_server

    fork_server.main([str(channel), str(os.getppid()), *words])


def _be_kernel(words: list[str], cwd: str) -> None:
    """Be like a Python that has just started, with `-m` and these words on its command line."""
    from labkit.exercises import attempts
    from labkit.timing import chain

    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    _be_fresh(cwd)
    for module in (attempts, chain):  # as if they were imported in this folder
        module.FILE = Path(cwd, module.FILE.name)
    sys.argv[:] = words[1:]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


def _be_script(script: str, cwd: str, arguments: Sequence[str] = (), owner: int = 0) -> None:
    """Be like a Python that was started with this file, which finds modules beside it first."""
    if owner:
        threading.Thread(target=_end_with, args=(os.pidfd_open(owner),), daemon=True).start()
    for name in [name for name in sys.modules if name.partition(".")[0] == "labkit"]:
        del sys.modules[name]
    keras = sys.modules["keras.src.backend.config"]
    keras._KERAS_DIR = os.environ.get("KERAS_HOME", keras.keras_home())
    _be_fresh(cwd)
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, str(Path(cwd, script).parent))
    runpy.run_path(script, run_name="__main__")


def _end_with(owner: int) -> NoReturn:
    select.select([owner], [], [])
    os._exit(1)


def _be_fresh(cwd: str) -> None:
    import numpy as np
    import wrapt

    start_cold = subprocess.Popen.__init__

    def start(self: Any, command: Any, *options: Any, **more: Any) -> None:
        python, *words = command if isinstance(command, list) else [command]
        if python == sys.executable and str(*words[:1]).endswith(".py"):
            command = [python, "-I", "-S", SHIM, *words]
        start_cold(self, command, *options, **more)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign,assignment]

    @wrapt.when_imported("labkit.cluster.here.fork_client")
    def warm(module: Any) -> None:
        module.subprocess = WarmSubprocess()

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    np.random.seed()  # noqa: NPY002 (all are copies of one process)


BE = {"kernel": _be_kernel, "fork_server": _be_fork_server, "script": _be_script}

if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
