"""A real JupyterLab in headless Chromium, for tests: `with Lab(folder) as lab: lab.open(...)`.

Server and browser are private (their own folders, port, token) and end with the block, whatever
ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_APP = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
SWITCHES = [
    "--headless", "--no-sandbox", "--disable-background-networking", "--disable-component-update",
    "--disable-gpu", "--disable-quic", "--disable-sync", "--no-first-run",
]  # fmt: skip
SETTINGS = {
    # News and updates would be failed requests on a machine without network.
    "@jupyterlab/apputils-extension/notification": {
        "checkForUpdates": False, "fetchNews": "false", "doNotDisturbMode": True,
    },
    # Every cell stays in the page, also those that a reader has scrolled past.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}  # fmt: skip
FOLDERS = {
    "IPYTHONDIR": "ipython",
    "JUPYTER_CONFIG_DIR": "config",
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_RUNTIME_DIR": "runtime",
    "JUPYTERLAB_SETTINGS_DIR": "settings",
    "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
}
WARM_SERVER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from jupyter_client.provisioning import local_provisioner
from jupyterlab.labapp import main
from tests import warm_kernel
local_provisioner.launch_kernel = warm_kernel.launch
sys.exit(main())
"""
STARTING_SECONDS = 600
PAGE = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")


def chromium() -> str | None:
    """The browser of this machine; LABKIT_CHROMIUM names another."""
    named = os.environ.get("LABKIT_CHROMIUM")
    found = map(shutil.which, [named] if named else [*NAMES, MAC_APP])
    return next((path for path in found if path), None)


def needs_chromium() -> str:
    """The browser; without one the test is skipped, or fails where LABKIT_REQUIRE_BROWSER=1."""
    if found := chromium():
        return found
    why = "There is no Chromium here: install chromium, or name one in LABKIT_CHROMIUM."
    if os.environ.get("LABKIT_REQUIRE_BROWSER") == "1":
        pytest.fail(why)
    pytest.skip(why)


# jupyter_server answers this with 500 where a kernel of the list is just being started; JupyterLab
# asks again.
LIST = "/api/kernels?"


class Lab:
    """JupyterLab on a folder, and one page of it; its kernels have TensorFlow, unless `cold`."""

    def __init__(self, folder: Path, *, cold: bool = False) -> None:
        self.folder, self.cold = folder, cold
        self.faults: list[str] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as ending:
            self._private = Path(tempfile.mkdtemp(prefix="labkit-browser-"))
            ending.callback(shutil.rmtree, self._private, ignore_errors=True)
            self._start_server(ending)
            self._start_browser(ending)
            self._ending = ending.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.close()

    def _start_server(self, ending: contextlib.ExitStack) -> None:
        for name, values in SETTINGS.items():
            file = self._private / "settings" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.token = secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{port}"
        environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
        environment |= {name: str(self._private / sub) for name, sub in FOLDERS.items()}
        environment |= {"LABKIT_PROGRESS": "off", "JUPYTER_PREFER_ENV_PATH": "1"}
        command = [sys.executable, *(("-m", "jupyterlab") if self.cold else ("-c", WARM_SERVER))]
        command += ["--no-browser", "--allow-root"]
        command += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
        command += ["--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.folder}"]
        command += [f"--IdentityProvider.token={self.token}", "--ServerApp.terminals_enabled=False"]
        command += ["--ServerApp.contents_manager_class=labkit.contents.Contents"]
        command += ["--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
        log = ending.enter_context((self._private / "server.log").open("w+"))
        self._server = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        ending.callback(self._stop_server)
        deadline = time.monotonic() + STARTING_SECONDS
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise RuntimeError(f"JupyterLab did not start:\n{log.read()[-3000:]}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(0.1)

    def _answers(self) -> bool:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self.url}/api/status?token={self.token}", timeout=5):
                return True
        except OSError:
            return False

    def _stop_server(self) -> None:
        server = psutil.Process(self._server.pid)
        processes = [*server.children(recursive=True), server]
        server.terminate()  # and it ends its kernels
        for late in psutil.wait_procs(processes, timeout=15)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                late.kill()
        self._server.wait(5)

    def _start_browser(self, ending: contextlib.ExitStack) -> None:
        from playwright.sync_api import sync_playwright

        driver = sync_playwright().start()
        ending.callback(driver.stop)
        browser = driver.chromium.launch_persistent_context(
            str(self._private / "chromium"), executable_path=chromium(), headless=True,
            args=SWITCHES, viewport={"width": 1200, "height": 1000},
        )  # fmt: skip
        ending.callback(browser.close)
        self.page = browser.pages[0]
        self.page.set_default_timeout(60_000)
        self.page.add_init_script(PAGE)
        self.page.on("pageerror", self._on_error)
        self.page.on("console", self._on_console)
        self.page.on("requestfailed", lambda one: self._on_request(one.url, one.failure))
        self.page.on("response", lambda one: self._on_request(one.url, one.status))

    def _on_error(self, error: Any) -> None:
        # JupyterLab says so of every question that is open when its page or its kernel is left.
        # A kernel that ends by itself is one of the faults that page.js finds.
        if not str(error).startswith("Error: Canceled future for "):
            self.faults.append(f"{error} {error.stack}")

    def _on_console(self, message: Any) -> None:
        # JupyterLab asks for attachment:name.png once, before it puts the picture in its place.
        # A picture that is missing for good is one that page.js cannot load.
        # anywidget gives a page two seconds to begin; on a busy machine it begins later, and works.
        url, is_late = message.location.get("url", ""), "[anywidget] Failed to init" in message.text
        if message.type == "error" and "attachment:" not in url and LIST not in url and not is_late:
            self.faults.append(f"console: {message.text[:500]}")

    def _on_request(self, url: str, outcome: str | int) -> None:
        # The page itself gives up requests when it is left for another one.
        good = outcome < 400 if isinstance(outcome, int) else outcome == "net::ERR_ABORTED"
        good = good or (outcome == 500 and LIST in url)
        if not good and not url.startswith("attachment:"):
            self.faults.append(f"request: {url.replace(self.token, 'TOKEN')}: {outcome}")

    def open(self, name: str) -> None:
        """Open a notebook, with a kernel that is ready."""
        self.faults.clear()
        self.page.goto(f"{self.url}/lab/tree/{quote(name)}?token={self.token}&reset")
        self.page.wait_for_function("() => labkitPage.isOpen()")
        self.page.evaluate("() => labkitPage.watchKernel()")
        self.page.wait_for_function("() => labkitPage.kernelIsIdle()")

    def run_all(self, seconds: float) -> bool:
        """Run every cell; whether all have come to an end in time."""
        from playwright.sync_api import TimeoutError as TooLong

        self.page.evaluate("() => labkitPage.runAll()")
        try:
            self.page.wait_for_function("() => labkitPage.isDone()", timeout=1000 * seconds)
        except TooLong:
            return False
        return True

    def ask(self, question: str) -> Any:
        """What a function of page.js answers."""
        return self.page.evaluate(f"async () => await labkitPage.{question}()")

    def theme(self, name: str) -> None:
        """`JupyterLab Light` or `JupyterLab Dark`, once it is really there."""
        self.page.evaluate("name => labkitPage.changeTheme(name)", name)
        self.page.wait_for_function("name => labkitPage.themeIs(name)", arg=name)
        # JupyterLab removes its splash a moment later, and fails if another change began meanwhile.
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def keep_picture(self, name: str) -> None:
        """A PNG of the whole notebook in the folder that LABKIT_SHOTS names."""
        folder = os.environ.get("LABKIT_SHOTS")
        if not folder:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        before = self.page.viewport_size
        height = min(max(self.ask("height"), 1000), 15_000)
        self.page.set_viewport_size({"width": 1200, "height": height})
        self.page.screenshot(path=Path(folder) / name)
        self.page.set_viewport_size(before)

    def close_notebook(self) -> None:
        """End the kernel, without saving anything."""
        with contextlib.suppress(Exception):
            self.page.evaluate("async () => await labkitPage.shutdown()")
