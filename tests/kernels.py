"""A real Jupyter kernel, and what its cells put out."""

import json
import os
import re
from pathlib import Path

from jupyter_client.manager import start_new_kernel

ROOT = Path(__file__).parent.parent


class Kernel:
    """A kernel in the folder of the repository or another, with these variables besides."""

    def __init__(self, *words, cwd=ROOT, **variables):
        environment = {**os.environ, **variables}
        more = {"cwd": str(cwd), "env": environment, "extra_arguments": [*words]}
        self.manager, self.client = start_new_kernel(300, "python3", **more)

    def run(self, code, until=None, cell=None):
        """Messages of the cell: to its end, or until it has written these words."""
        message = self.client.session.msg("execute_request", {"code": code, "silent": False})
        message["metadata"] = {"cellId": cell}
        self.client.shell_channel.send(message)
        self.request = message["header"]["msg_id"]
        return self.rest(until)

    def rest(self, until=None):
        """Messages of the cell from now on."""
        found = []
        while until is None or not re.search(until, text_of(found)):
            found.append(self.client.get_iopub_msg(timeout=300))
            idle = found[-1]["content"].get("execution_state") == "idle"
            if idle and found[-1]["parent_header"].get("msg_id") == self.request:
                break
        return found

    def value(self, expression):
        return json.loads(text_of(self.run(f"import json; print(json.dumps({expression}))")))

    def close(self):
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


def text_of(messages):
    contents = [one["content"] for one in messages]
    return "".join(
        one.get("text", "") + one.get("data", {}).get("text/plain", "") for one in contents
    )


def fault_of(messages):
    """The name of the cell's error."""
    return next((one["content"]["ename"] for one in messages if one["msg_type"] == "error"), None)
