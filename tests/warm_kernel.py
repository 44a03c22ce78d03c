"""Kernels of notebooks under test, each a fork of one process that has imported TensorFlow.

Starting IPython and importing TensorFlow, Keras and matplotlib takes three seconds of CPU for each
notebook; here it takes them once for each process of pytest. Linux; elsewhere kernels start cold.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, NoReturn

IMPORTED = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "matplotlib.pyplot", "keras", "tensorflow",
    "labkit.exercises", "labkit.training", "labkit.strategies",
)  # fmt: skip
INLINE = "module://matplotlib_inline.backend_inline"


def launch(command: list[str], *, cwd: str, env: dict[str, str], **options: Any) -> Any:
    """In the place of jupyter_client's own: a warm kernel, where the command starts IPython's."""
    from jupyter_client.launcher import launch_kernel

    if sys.platform != "linux" or command[:3] != [sys.executable, "-m", "ipykernel_launcher"]:
        return launch_kernel(command, cwd=cwd, env=env, **options)
    return Kernel(command[2:], cwd, env)


class Kernel:
    """A forked kernel, with what jupyter_client uses of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], cwd: str, env: dict[str, str]) -> None:
        self.returncode: int | None = None
        self.pid = _ask({"arguments": arguments, "cwd": str(cwd), "env": env})
        self._ended = os.pidfd_open(self.pid)

    def poll(self, seconds: float | None = 0) -> int | None:
        """Its exit status, or None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            os.close(self._ended)
            self.returncode = _ask({"reap": self.pid})
        return self.returncode

    def wait(self) -> int | None:
        return self.poll(None)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """The process that forks; it ends when this one does, since its input then ends."""
    return subprocess.Popen(
        [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, start_new_session=True, env={**os.environ, "MPLBACKEND": INLINE},
    )  # fmt: skip


def _ask(request: dict[str, Any]) -> int:
    asked, answers = _server().stdin, _server().stdout
    assert asked is not None
    assert answers is not None
    print(json.dumps(request), file=asked, flush=True)
    return int(answers.readline())


def _serve() -> None:
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # a kernel ends with it; read at import
    gc.disable()  # it would take a fifth of the seconds of the imports
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a kernel would copy every page of these objects
    for line in sys.stdin:
        request = json.loads(line)
        if "reap" in request:
            print(os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1]), flush=True)
        elif os.fork() == 0:
            _be_kernel(**request)


def _be_kernel(arguments: list[str], cwd: str, env: dict[str, str]) -> NoReturn:
    """Be like a Python that `python -m ipykernel_launcher` has just started."""
    import numpy as np
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    print(os.getpid(), flush=True)  # not before: who asked takes it for a group
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update({**env, "JPY_PARENT_PID": str(os.getppid())})
    time.tzset()
    np.random.seed()  # noqa: NPY002 (kernels are copies of one process)
    sys.argv[:] = arguments
    gc.enable()
    IPKernelApp.launch_instance()
    sys.exit()


if __name__ == "__main__":
    _serve()
