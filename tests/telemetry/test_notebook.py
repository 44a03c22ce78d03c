"""The panel in a real Jupyter kernel: what goes into the cell's output, and what the cells tell."""

import json
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).parent.parent.parent
WIDGET = "application/vnd.jupyter.widget-view+json"


class Kernel:
    """A kernel, and all that its cells have put out."""

    def __init__(self):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(ROOT))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    @property
    def pid(self):
        return self.manager.provisioner.process.pid

    def run(self, code, cell=None, seconds=60):
        """Messages of the cell, and its error if it had one."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = self.client.session.msg("execute_request", content)
        if cell is not None:
            message["metadata"] = {"cellId": cell}
        self.client.shell_channel.send(message)
        return self.until_idle(message["header"]["msg_id"], seconds)

    def until_idle(self, request, seconds):
        messages, deadline = [], time.monotonic() + seconds
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            messages.append(message)
            idle = message["content"].get("execution_state") == "idle"
            if idle and message["parent_header"].get("msg_id") == request:
                faults = [m["content"] for m in messages if m["msg_type"] == "error"]
                assert faults == []
                return messages

    def value(self, expression):
        messages = self.run(f"import json; print(json.dumps({expression}))")
        return json.loads(
            "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")
        )

    def samplers(self):
        children = psutil.Process(self.pid).children(recursive=True)
        return [one for one in children if "labkit.telemetry.process" in " ".join(one.cmdline())]

    def close(self):
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture(scope="module")
def kernel():
    started = Kernel()
    started.run("import time, labkit")
    yield started
    started.close()


def displays(messages, kind="display_data"):
    return [m["content"] for m in messages if m["msg_type"] == kind]


def test_a_block_shows_a_live_panel_and_leaves_a_picture(kernel):
    messages = kernel.run(
        "import time, labkit\n"
        "with labkit.panel(sources=('host',)) as panel:\n"
        "    with panel.span('a second'):\n"
        "        time.sleep(3)\n"
    )
    (live,) = displays(messages)
    (final,) = displays(messages, "update_display_data")
    assert live["transient"]["display_id"] == final["transient"]["display_id"]
    # A widget's view without its model would hide every other format in a saved notebook.
    assert WIDGET not in live["data"]
    assert WIDGET not in final["data"]
    assert "labkit-panel" in live["data"]["text/html"]
    assert "a second" in final["data"]["text/plain"]
    assert final["data"]["image/png"].startswith("iVBOR")
    assert final["metadata"]["image/png"]["alt"]
    # The numbers went to the browser while the cell ran.
    sent = [m for m in messages if m["msg_type"] == "comm_msg" and "lines" in str(m["content"])]
    assert len(sent) >= 5


def test_a_still_notebook_holds_a_picture_and_no_script(kernel):
    kernel.run("import os; os.environ['LABKIT_PICTURES'] = 'still'")
    try:
        messages = kernel.run(
            "with labkit.panel(sources=('host',)) as panel:\n    time.sleep(0.5)\n"
        )
    finally:
        kernel.run("del os.environ['LABKIT_PICTURES']")
    (final,) = displays(messages, "update_display_data")
    assert set(final["data"]) == {"text/plain", "image/png"}
    assert all("text/html" not in shown["data"] for shown in displays(messages))


def test_cells_mark_themselves_once_they_last(kernel):
    kernel.run("panel = labkit.panel(sources=('host',))")
    kernel.run("short = 1")
    messages = kernel.run("import math\n# what follows lasts\ntime.sleep(0.6)")
    (prompt,) = [m["content"] for m in messages if m["msg_type"] == "execute_input"]
    kernel.run("panel.stop()")
    names = kernel.value("[span.name for span in panel.recording.spans if span.by == 'cell']")
    assert names == [f"[{prompt['execution_count']}] time.sleep(0.6)"]


def test_running_a_cell_again_stops_the_panel_that_it_left(kernel):
    for _ in range(3):
        kernel.run("panel = labkit.panel(sources=('host',))", cell="the-same-cell")
    assert len(kernel.samplers()) == 1
    kernel.run("other = labkit.panel(sources=('host',))", cell="another-cell")
    assert len(kernel.samplers()) == 2
    kernel.run("panel.stop(); other.stop()")
    assert kernel.samplers() == []


def test_a_stopped_panel_is_still_shown(kernel):
    kernel.run("panel = labkit.panel(sources=('host',)); time.sleep(0.3); panel.stop()")
    (shown,) = displays(kernel.run("panel"))
    assert {"text/plain", "image/png", "text/html"} <= set(shown["data"])


def test_a_panel_prints_nothing(kernel):
    messages = kernel.run(
        "panel = labkit.panel(sources=('host',))\n"
        "began = time.monotonic()\n"
        "while time.monotonic() - began < 1: pass\n"
        "panel.stop()\n"
    )
    assert [m["content"] for m in messages if m["msg_type"] == "stream"] == []


def test_restarting_the_kernel_leaves_no_sampler():
    kernel = Kernel()
    try:
        kernel.run("import labkit\npanel = labkit.panel()\nother = labkit.panel(every=0.5)")
        left = kernel.samplers()
        assert len(left) == 2
        kernel.manager.restart_kernel(now=True)
        _, alive = psutil.wait_procs(left, timeout=10)
        assert alive == []
    finally:
        kernel.close()


def test_an_interrupt_ends_the_cell_and_the_panel():
    kernel = Kernel()
    try:
        kernel.run("import time, labkit")
        request = kernel.client.execute(
            "try:\n"
            "    with labkit.panel(sources=('host',)) as panel:\n"
            "        print('watching', flush=True)\n"
            "        time.sleep(60)\n"
            "except KeyboardInterrupt:\n"
            "    pass\n"
        )
        while kernel.client.get_iopub_msg(timeout=20)["content"].get("text") != "watching\n":
            pass
        kernel.manager.interrupt_kernel()
        kernel.until_idle(request, 20)
        assert kernel.samplers() == []
        assert kernel.value("panel.live") is False
    finally:
        kernel.close()
