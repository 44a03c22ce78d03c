"""Two users on a real JupyterHub on loopback, configured as docs/jupyterhub.md says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from labkit.cluster.ranks.ports import free_ports

pytestmark = pytest.mark.stress  # a minute, most of it waiting for servers to start and to end

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv" / "hub"
TOKEN = "0123456789abcdef" * 2
# What a hub for a test needs beside the recipe: users without passwords, on loopback only.
TESTED = """
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = ["{bin}/configurable-http-proxy"]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/home/{{username}}"
c.Spawner.cmd = ["{bin}/jupyterhub-singleuser", "--allow-root"]
c.JupyterHub.cookie_secret_file = "{folder}/cookie"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.services = [dict(name="test", api_token="{token}")]
c.JupyterHub.load_roles = [dict(name="test", services=["test"],
    scopes=["admin:users", "admin:servers", "access:servers"])]
"""


class Hub:
    """A hub of one's own; nothing of it outlives `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder, (self.port, hub, proxy) = folder, free_ports(3)
        text = (ROOT / "docs" / "jupyterhub.md").read_text(encoding="utf-8")
        recipe = re.search(r"```python\n(import shutil.*?)```", text, re.DOTALL)
        assert recipe is not None
        names = {"port": self.port, "hub": hub, "proxy": proxy, "folder": folder, "token": TOKEN}
        text = recipe[1].replace("/opt/distributed/data", str(folder / "data"))
        text = text.replace("/opt/distributed", str(ROOT))
        config = folder / "jupyterhub_config.py"
        config.write_text(text + TESTED.format(bin=VENV / "bin", **names))
        self.log = folder / "hub.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [VENV / "bin" / "jupyterhub", "--config", str(config)],
                cwd=folder, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}"},
            )  # fmt: skip

    def ask(self, path: str, method: str = "GET", content: object = None) -> object:
        """The answer of the hub, or of a user's server, as JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={"Authorization": f"token {TOKEN}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def wait(self, path: str, seconds: float = 120.0) -> object:
        """The answer, once there is one."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.ask(path)
            except (HTTPError, URLError, OSError):
                if time.monotonic() > end or self._process.poll() is not None:
                    raise AssertionError(self.log.read_text()[-3000:]) from None
                time.sleep(0.3)

    def start_server(self, user: str) -> None:
        """Add the user and start their JupyterLab, as a log-in does."""
        self.ask(f"/hub/api/users/{user}", "POST")
        self.ask(f"/hub/api/users/{user}/server", "POST")
        self.wait(f"/user/{user}/api/status")

    def run(self, user: str, code: str) -> str:
        """What code prints on a new kernel of this user, which stays."""
        kernel = self.ask(f"/user/{user}/api/kernels", "POST", {"path": "/"})
        place = f"127.0.0.1:{self.port}/user/{user}/api/kernels/{kernel['id']}/channels"
        header = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "username": user}
        message = {
            "header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {},
            "content": {"code": code, "silent": False, "store_history": False,
                        "user_expressions": {}, "allow_stdin": False},
            "channel": "shell",
        }  # fmt: skip

        async def printed() -> str:
            asked = HTTPRequest(f"ws://{place}", headers={"Authorization": f"token {TOKEN}"})
            socket, found = await websocket_connect(asked), ""
            await socket.write_message(json.dumps(message))
            while True:
                answer = json.loads(await asyncio.wait_for(socket.read_message(), 120))
                if answer["parent_header"].get("msg_id") != "1":
                    continue  # of the kernel's start
                content = answer["content"]
                found += content.get("text", "") or "\n".join(content.get("traceback", []))
                if content.get("execution_state") == "idle":
                    return found

        return asyncio.run(printed())

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)  # it ends its users' servers first
        try:
            self._process.wait(60)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


@pytest.fixture
def hub(tmp_path):
    if not (VENV / "bin" / "jupyterhub").exists():
        pytest.skip("JupyterHub is not installed here: make beside NAMES=hub")
    started = Hub(tmp_path)
    try:
        started.wait("/hub/api/")
        yield started
    finally:
        started.stop()


def test_two_users_work_beside_each_other(hub):
    code = "import labkit, os; labkit.check('00.kind', 'measured'); print(os.getcwd())"
    for user in ("alice", "bob"):
        hub.start_server(user)
    for user in ("alice", "bob"):
        folder = hub.run(user, code).splitlines()[-1]
        assert Path(folder) == hub.folder / "home" / user / "distributed" / "notebooks"
        assert (Path(folder) / "labkit-progress.json").is_file()
    listed = hub.ask("/user/alice/api/contents/")
    assert "00_start_here.ipynb" in [one["name"] for one in listed["content"]]
    shutil.rmtree(hub.folder / "home")
