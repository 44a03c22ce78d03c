"""A real kernel, and a front end that takes its messages, counts them and throws them away."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

DEADLINE = 120  # seconds between two messages of a kernel that is well


class Kernel:
    """Runs cells to their end."""

    def __init__(self, environment: dict[str, str]) -> None:
        from jupyter_client.manager import KernelManager

        self.manager = KernelManager(kernel_name="python3")
        start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self.manager.kernel_cmd = start
        # What it says at its start about its own ports is of no use here.
        self.manager.start_kernel(
            env={**os.environ, **environment}, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.client = self.manager.client()
        self.to_widgets = 0
        try:
            self.client.start_channels()
            self.client.wait_for_ready(timeout=DEADLINE)
        except BaseException:
            self.stop()
            raise

    def run(self, code: str, said: Any = lambda text: None) -> None:
        """Run a cell to its end; `said` gets what it prints."""
        asked = self.client.execute(code)
        while True:
            message = self.client.get_iopub_msg(timeout=DEADLINE)
            kind, content = message["msg_type"], message["content"]
            ours = message["parent_header"].get("msg_id") == asked
            if kind == "comm_msg":
                self.to_widgets += 1
            elif kind == "stream" and content["name"] == "stdout":
                said(content["text"])
            elif kind == "error" and ours:
                why = f"{content['ename']}: {content['evalue']}"
                raise SystemExit(f"The training cell failed: {why}")
            elif kind == "status" and ours and content["execution_state"] == "idle":
                return

    def stop(self) -> None:
        """End this very kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
