"""The panel as a program and a notebook use it: started, marked, shown, stopped, nothing left."""

import json
import threading
from contextlib import suppress
from statistics import median

import psutil
import pytest

import labkit
from labkit import LabError
from labkit.telemetry.client import SamplerClient
from tests.cluster.private_slurm import wait_for
from tests.kernels import Kernel

WIDGET = "application/vnd.jupyter.widget-view+json"


def samplers(pid=None):
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended since, or is a zombie of another test
            if "labkit.telemetry.sampler" in " ".join(child.cmdline()):
                found.append(child)
    return found


@pytest.fixture
def panel():
    with labkit.panel() as panel:
        yield panel


def test_a_span_has_a_row_in_the_table(panel):
    with panel.span("busy", images=1000):
        wait_for(lambda: len(panel.recording.column("cpu", "utilisation")[0]) > 8, "samples")
    with panel.span("counted") as span:
        span.end(images=5)
    busy, counted = panel.table().rows
    assert (busy.span.name, counted.span.images) == ("busy", 5)
    assert busy.images_per_second == pytest.approx(1000 / busy.seconds)
    assert busy.text("utilisation").endswith("%")
    # The sample that the end of a span has asked for is in the table.
    assert panel.recording.series[-1].times[-1] >= counted.span.end


def test_an_exception_in_the_block_stops_the_panel_and_leaves_nothing_behind():
    with pytest.raises(ZeroDivisionError), labkit.panel() as panel, panel.span("broken", images=9):
        1 / 0  # noqa: B018
    (span,) = panel.recording.spans
    assert (span.end is not None, span.images) == (True, None)
    assert not panel.live
    assert samplers() == []
    assert "labkit sampler" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(LabError, match="'late'"):
        panel.span("late")
    with pytest.raises(LabError, match="Start another"), panel:
        pass


def test_an_interrupt_while_it_starts_leaves_no_sampler(monkeypatch):
    def interrupted(client, _):
        begun.append(client)
        raise KeyboardInterrupt

    begun = []
    monkeypatch.setattr(SamplerClient, "flush", interrupted)
    with pytest.raises(KeyboardInterrupt):
        labkit.panel()
    assert not begun[0].alive


def test_a_mistake_in_a_new_panel_does_not_stop_the_one_that_runs(panel):
    with pytest.raises(LabError, match="every"):
        labkit.panel(every=0)
    assert panel.live


def test_a_span_that_is_open_when_the_panel_stops_ends_there(panel):
    span = panel.span("for ever", images=10)
    panel.stop()
    (kept,) = panel.recording.spans
    assert kept.end is not None
    assert kept.images is None
    span.end()
    assert panel.recording.spans == (kept,)


# In a real Jupyter kernel


@pytest.fixture(scope="module")
def kernel():
    started = Kernel()
    started.run("import time, labkit")
    yield started
    started.close()


def displays(messages, kind="display_data"):
    return [m["content"] for m in messages if m["msg_type"] == kind]


def sent(messages, key):
    """What was sent to the page's widget model."""
    data = [m["content"]["data"] for m in messages if m["msg_type"] == "comm_msg"]
    contents = [one["content"] for one in data if one.get("method") == "custom"]
    return [content[key] for content in contents if key in content]


def test_a_block_shows_a_live_panel_and_leaves_a_picture(kernel):
    messages = kernel.run(
        "with labkit.panel(title='A second', metrics=['process_memory']) as panel:\n"
        "    while not panel.recording.seconds:\n        time.sleep(0.1)\n"  # a slow start
        "    with panel.span('asleep'):\n        time.sleep(2)\n"
    )
    (live,) = displays(messages)
    (final,) = displays(messages, "update_display_data")
    assert live["transient"]["display_id"] == final["transient"]["display_id"]
    # A widget's view without its model would hide every other format in a saved notebook.
    assert WIDGET not in live["data"]
    assert WIDGET not in final["data"]
    assert "labkit-panel" in live["data"]["text/html"]
    for one in (live, final):
        assert '"shown": ["process_memory"]' in one["data"]["text/html"]
    assert "asleep" in final["data"]["text/plain"]
    assert final["data"]["image/png"].startswith("iVBOR")
    assert final["metadata"]["image/png"]["alt"].startswith("A second: samples of")
    # While the cell runs, the page gets every sample, five in a message.
    texts = [json.loads(text) for text in sent(messages, "lines")]
    seen, newer = set(), []
    for lines in texts:  # while the page loads, a message holds all lines so far
        times = {one[1] for one in lines if isinstance(one, list) and one[0] == 1} - seen
        newer.append(len(times))
        seen |= times
    assert len(seen) >= 15
    assert median(newer) <= 8  # five, and those at the edges of spans
    assert len(texts) < len(seen) / 2
    assert sent(messages, "ended") == ["stopped"]
    assert [m["content"] for m in messages if m["msg_type"] == "stream"] == []


def test_a_kernel_that_runs_a_cell_with_a_panel_is_shown_as_busy(kernel):
    """JupyterLab asks for a subshell when it meets a panel, and takes any idle for the kernel's."""
    kernel.run("with labkit.panel() as panel:\n    print('now')\n    time.sleep(2.5)", until="now")
    subshell = kernel.client.session.msg("create_subshell_request", {})
    kernel.client.control_channel.send(subshell)
    messages = kernel.rest()
    states = [
        (m["parent_header"]["msg_id"], m["content"]["execution_state"])
        for m in messages
        if m["msg_type"] == "status"
    ]
    idle = states.index((subshell["header"]["msg_id"], "idle"))
    assert (kernel.request, "busy") in states[idle:]
    assert states[-1] == (kernel.request, "idle")


def test_cells_are_spans_once_they_last(kernel):
    kernel.run("panel = labkit.panel()")
    kernel.run("short = 1")
    messages = kernel.run("import math\n# what follows lasts\ntime.sleep(0.6)")
    (prompt,) = [m["content"] for m in messages if m["msg_type"] == "execute_input"]
    kernel.run("panel.stop()")
    names = kernel.value("[span.name for span in panel.recording.spans]")
    assert names == [f"[{prompt['execution_count']}] time.sleep(0.6)"]


def test_a_new_panel_ends_the_one_before_it_says_so_and_leaves_no_callback(kernel):
    count = "[len(one) for one in get_ipython().events.callbacks.values()]"
    before = kernel.value(count)
    kernel.run("first = labkit.panel(); first")
    messages = kernel.run("second = labkit.panel()")
    assert kernel.value("[first.live, second.live]") == [False, True]
    assert sent(messages, "ended") == ["another panel was started"]
    kernel.run("second.stop()")
    assert samplers(kernel.manager.provisioner.process.pid) == []
    assert kernel.value(count) == before
