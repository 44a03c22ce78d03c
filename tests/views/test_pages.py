"""Panel and player as HTML: their code and data are inside, whole, small and harmless."""

from __future__ import annotations

import gc
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import labkit
from labkit import collectives
from labkit.collectives.contributions import contributions
from labkit.collectives.page import player
from labkit.telemetry import metrics as telemetry
from labkit.telemetry.page import bridge as bridges
from labkit.telemetry.page import panel_page
from labkit.telemetry.page.bridge import Bridge
from labkit.views.embed import document, embedded, joined, modules, path_of, program
from tests.telemetry.panel_recordings import METRICS, made

HERE = Path(__file__).parent
RECORDINGS = HERE.parents[1] / "notebooks" / "recordings"
SHIPPED = sorted({*RECORDINGS.glob("*.jsonl"), RECORDINGS / "one_gpu.jsonl"})
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="There is no node here to run JavaScript.")
EXPLORERS = (
    "all_reduce",
    "buckets",
    "checkpoints",
    "experts",
    "memory",
    "mesh",
    "ring_attention",
    "stability",
)
PAGES = ("panel", "player", "players", "pipeline", "pipelines", "traffic", "parameter_server")
PAGES += tuple(f"explore_{name}" for name in EXPLORERS)
LINK = {"latency": 1e-6, "bandwidth": 1e9}
# What the page itself makes of lists of recordings and of runs.
UNPACK = f"""
import {{ readFileSync }} from "node:fs";
import {{ unpack }} from "{path_of("page").as_uri()}";
import {{ Store }} from "{path_of("store").as_uri()}";
import {{ METRICS, metricsOf }} from "{path_of("panel_draw").as_uri()}";
import {{ RunData }} from "{path_of("player_data").as_uri()}";
const range = (count) => [...Array(count).keys()];
async function recording(text) {{
  const store = new Store();
  await store.receive({{ history: text }});
  const columnsOf = (table) => [...table.columns.values()].map(({{ values }}) => values);
  const tables = store.tables.map((one) => ({{ times: one.times, columns: columnsOf(one) }}));
  const [metrics, states] = [metricsOf(store, null), [...store.states.values()].flat()];
  return {{ ...store, tables, metrics, states, listeners: null }};
}}
async function run(text) {{
  const data = new RunData(await unpack(text));
  return range(data.steps + 1).map((step) => ({{
    cells: range(data.ranks).map((rank) => range(data.columns).map((cell) => {{
      const {{ held, text }} = data.cell(step, rank, cell);
      return [held && held.counts, text];
    }})),
    sent: [...data.sent[step]], lines: data.lines(step), messages: data.messages[step].length,
  }}));
}}
const given = JSON.parse(readFileSync(0, "utf8"));
Object.assign(METRICS, given.metrics);
const [recordings, runs] = [given.recordings.map(recording), given.runs.map(run)];
process.stdout.write(JSON.stringify([await Promise.all(recordings), await Promise.all(runs)]));
"""


# How a run looks on the stage: what its banner says, and which boxes of ranks overlap.
STAGE = f"""
import {{ readFileSync }} from "node:fs";
import {{ unpack }} from "{path_of("page").as_uri()}";
import {{ RunData }} from "{path_of("player_data").as_uri()}";
import {{ bannerText, stageGeometry }} from "{path_of("player_stage").as_uri()}";
async function stage(text) {{
  const data = new RunData(await unpack(text));
  const {{ shape, phases }} = data;
  const steps = [...Array(data.steps + 1).keys()];
  const banner = steps.map((step) => Object.values(bannerText(data, step, true, null)).join(" | "));
  const faults = (shape ? [490, 680, 900] : []).flatMap((width) => {{
    const {{ area, at, height }} = stageGeometry(data, width);
    const cells = [...Array(data.ranks * data.columns).keys()].map((i) =>
      [Math.floor(i / data.columns), i % data.columns]);
    const wrong = cells.filter(([rank, cell]) => {{
      const {{ x, y, w, h }} = area(rank, cell);
      const found = at(x + w / 2, y + h / 2);
      const inside = x >= 0 && y >= 0 && x + w <= width && y + h <= height;
      return !inside || found?.rank !== rank || found.cell !== cell;
    }});
    return wrong.length || height < 400 ? [[width, height, wrong]] : [];
  }});
  return {{ kind: shape?.kind ?? null, phases, banner, faults, says: data.says }};
}}
const runs = JSON.parse(readFileSync(0, "utf8")).map(stage);
process.stdout.write(JSON.stringify(await Promise.all(runs)));
"""


def node(*arguments, said=None):
    answer = subprocess.run(
        [NODE, *map(str, arguments)], input=said, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stdout[-5000:] + answer.stderr
    return answer.stdout


def unpacked(recordings=(), traces=()):
    """What the page's own code makes of recordings, and of runs."""
    options = re.search(r"script\.start\((.*)\);", made(1, 1).html())
    given = {
        "metrics": json.loads(options[1])["metrics"],
        "recordings": [panel_page.packed(one) for one in recordings],
        "runs": [player.run_data(one, contributions(one), one.timed(**LINK)) for one in traces],
    }
    return json.loads(node("--input-type=module", "-e", UNPACK, said=json.dumps(given)))


def ran(name, ranks):
    return collectives.run(getattr(collectives.programs, name), ranks=ranks)


def on_stage(*traces):
    runs = [player.run_data(one, contributions(one), one.timed(**LINK)) for one in traces]
    return json.loads(node("--input-type=module", "-e", STAGE, said=json.dumps(runs)))


@needs_node
def test_the_ring_says_what_arrives_and_counts_its_steps():
    (found,) = on_stage(ran("ring_all_reduce", 4))
    phases = [(one["name"], one["first"], one["last"]) for one in found["phases"]]
    assert phases == [("reduce-scatter", 1, 3), ("all-gather", 4, 6)]
    # Rank 0's chunk 3 is 4, and rank 3 sends its own, 16.
    assert found["banner"][1] == "reduce-scatter | 1 of 3: adds | 4 + 16 = 20 | on rank 0"
    assert found["banner"][4] == "all-gather | 1 of 3: copies | 28 overwrites 1 | on rank 0"
    assert found["banner"][6].startswith("done | 3 to add + 3 to copy | 6 steps | all 4 ranks")


SHAPES = [
    ("ring_all_reduce", 3, "ring", ["reduce-scatter", "all-gather"]),
    ("all_gather", 16, "ring", ["all-gather"]),
    ("broadcast", 8, "tree", ["broadcast"]),
    ("tree_all_reduce", 16, "tree", ["reduce", "broadcast"]),
    ("naive_all_reduce", 16, "star", ["reduce", "broadcast"]),
    ("scatter", 4, "star", ["scatter"]),
    ("hierarchical_all_reduce", 8, "levels", [
        "reduce-scatter in groups", "reduce-scatter between groups",
        "all-gather between groups", "all-gather in groups",
    ]),
    ("recursive_doubling_all_reduce", 8, "circle", [None]),
    ("rabenseifner_all_reduce", 16, "circle", ["reduce-scatter", "all-gather"]),
    ("all_to_all", 8, "circle", [None]),
    ("double_binary_tree_all_reduce", 7, "circle", None),
    ("ring_all_reduce", 17, None, []),
    ("reduce", 1, None, []),
]  # fmt: skip


@needs_node
def test_ranks_stand_as_their_messages_form_a_shape():
    stages = on_stage(*(ran(name, ranks) for name, ranks, *_ in SHAPES))
    for (name, ranks, kind, phases), found in zip(SHAPES, stages, strict=True):
        assert (found["kind"], found["faults"]) == (kind, []), (name, ranks)
        if phases is not None:
            assert [one["name"] for one in found["phases"]] == phases
        assert kind in ("ring", None) or "ring" not in " ".join(found["says"] + found["banner"])


@needs_node
def test_the_modules_do_what_they_promise():
    assert re.search(r"# pass \d\d\n# fail 0\n", node("--test", *HERE.parent.glob("*/*.test.mjs")))


@needs_node
def test_the_joined_modules_are_programs_without_two_equal_names(tmp_path):
    # A second function of a name would silently replace the first.
    for name in PAGES:
        code = joined(modules(name))
        found = r"^(?:async )?(?:function|const|let|class) (\w+)"
        names = re.findall(found, code, re.MULTILINE)
        assert sorted(names) == sorted(set(names))
        script = tmp_path / f"{name}.js"
        script.write_text(f"(() => {{ 'use strict';\n{code}\n}})();")
        node("--check", script)


@pytest.mark.parametrize("page", PAGES)
def test_words_stay_words_and_without_javascript_there_is_a_picture_or_a_sentence(page):
    evil = '</script><img src=x onerror="alert(1)"> <!-- "'
    fragment = embedded(page, {"title": evil}, key='a"b', alt=evil)
    assert fragment.count("</script>") == 1
    assert fragment.endswith("</script>")
    assert "<img" not in fragment.split("<script>")[0]
    assert "<!--" not in fragment
    assert "<title>&lt;b&gt;</title>" in document(fragment, "<b>")
    shown = embedded(page, {}, key="k", alt="Two GPUs, 60 s.", png=b"PNG")
    assert 'alt="Two GPUs, 60 s." ' in shown.split("<script>")[0]
    assert "base64,UE5H" in shown.split("<script>")[0]


@pytest.mark.parametrize("page", PAGES)
def test_no_code_makes_a_request(page):
    code = program(page, "") + embedded(page, {}, key="k", alt="a")
    assert not re.findall(r"https?://|\bfetch\(|XMLHttpRequest|@import|\beval\(|new Function", code)


def test_pages_are_small_and_always_the_same():
    words = {"key": "k", "alt": "GPUs.", "stamp": "recorded"}
    assert panel_page.page(made(), **words) == panel_page.page(made(), **words)
    assert len(panel_page.page(None, **words)) < 40_000
    assert len(panel_page.page(made(8, 3600), **words)) < 3_100_000
    trace = ran("ring_all_reduce", 8)
    fragment, again = (trace.player().html() for _ in range(2))
    assert fragment == again
    assert len(fragment) < 64_000  # matplotlib's to_jshtml of the same has 1.27 MB


# ---- the panel


@needs_node
def test_the_page_has_the_recording_and_of_a_long_one_every_extreme():
    recording = made(gpus=2, seconds=30)
    (series,) = recording.series
    long = np.full((90_000, 1, len(METRICS)), np.nan)
    long[:, 0, 0] = 50.0
    long[[12_345, 23_456], 0, 0] = 100.0, 1.0
    many = replace(made(1, 1).series[0], times=np.arange(90_000) * 0.1, values=long)
    found, empty, thinned = unpacked([
        recording, replace(recording, series=(), spans=()), replace(made(1, 1), series=(many,)),
    ])[0]  # fmt: skip
    (table,) = found["tables"]
    np.testing.assert_allclose(table["times"], series.times, atol=1e-4)
    values = np.array(table["columns"], dtype=float).T.reshape(series.values.shape)
    np.testing.assert_allclose(values, series.values, atol=1e-4)
    assert [one["name"] for one in found["spans"]] == [one.name for one in recording.spans]
    assert {one["why"] for one in found["states"]} == {"not supported"}
    known = {one["metric"]: one for one in found["metrics"]}
    assert known.keys() == {name for name in METRICS if telemetry.METRICS[name].colours}
    usual = [name for name, one in known.items() if one["shown"]]
    assert usual == ["utilisation", "memory", "power"]
    assert found["until"] == empty["until"] == recording.seconds
    (table,) = thinned["tables"]
    shown = np.array(table["columns"][0])
    assert len(shown) <= panel_page.MOST_NUMBERS / len(METRICS) + 2
    assert (shown.max(), shown.min()) == (100, 1)
    assert table["times"][int(shown.argmax())] == pytest.approx(1234.5, abs=1)
    assert table["times"][-1] == pytest.approx(8_999.9, abs=1)


@needs_node
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_recording_of_a_lecture_is_whole_for_python_and_for_the_page(file):
    recording = labkit.replay(file)
    assert recording.damage is None
    (found,) = unpacked([recording])[0]
    for one, table in zip(recording.series, found["tables"], strict=True):
        np.testing.assert_allclose(table["times"], one.times, atol=1e-4)
    assert found["until"] == recording.seconds


class FrontEnd:
    """Takes the messages of every comm that is opened."""

    def __init__(self, monkeypatch):
        import comm
        from comm.base_comm import BaseComm

        self.said = said = []

        class Comm(BaseComm):
            def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **_):
                said.append((msg_type, data))

        monkeypatch.setattr(comm, "create_comm", Comm)

    def messages(self, word):
        return [data["content"][word] for _, data in self.said if word in data.get("content", {})]

    def states(self, word):
        return [data["state"][word] for _, data in self.said if word in data.get("state", {})]


def test_lines_are_repeated_while_the_page_loads_and_spans_wait_for_samples(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(bridges, "time", SimpleNamespace(monotonic=lambda: now[0]))
    front = FrontEnd(monkeypatch)
    bridge = Bridge("k", lambda: panel_page.packed(made(1, 1)))
    span, first, second = '{"span":"a"}', "[0,1,[2]]", "[0,2,[3]]"
    bridge.send(first)
    bridge.send(second)
    now[0] += 10
    bridge.send(first)
    bridge.add(span)
    bridge.send(second)
    expected = [[first], [first, second], [first, second, first], [span, second]]
    assert front.messages("lines") == [f"[{','.join(lines)}]" for lines in expected]


def test_a_page_that_is_opened_later_is_given_the_recording_and_why_it_ended(monkeypatch):
    front = FrontEnd(monkeypatch)
    bridge = Bridge("k", lambda: panel_page.packed(made(gpus=1, seconds=12)))
    assert front.states("history") == [panel_page.packed(made(gpus=1, seconds=12))]
    bridge.close("another panel was started in this cell")
    bridge.send("[0,13,[2]]")
    assert front.messages("ended") == ["another panel was started in this cell"]
    assert front.states("ended")[-1] == "another panel was started in this cell"
    assert front.messages("lines") == []
    assert not any(kind == "comm_close" for kind, _ in front.said)
    del bridge
    gc.collect()
    assert any(kind == "comm_close" for kind, _ in front.said)


# ---- the player


@needs_node
def test_the_page_shows_what_each_rank_holds_and_in_which_line_it_is():
    def late(comm, buffer):
        if comm.Get_rank() == 0:
            comm.Send(buffer, dest=1)
            comm.Send(buffer, dest=2)
        else:
            comm.Recv(buffer, source=0)

    def posted(comm, buffer):
        other = 1 - comm.Get_rank()
        received = np.empty_like(buffer)
        requests = [comm.Irecv(received, source=other), comm.Isend(buffer, dest=other)]
        type(requests[0]).Waitall(requests)

    traces = [ran("ring_all_reduce", 5), ran("tree_all_reduce", 6), ran("reduce", 1)]
    traces += [collectives.run(late, ranks=3), collectives.run(posted, ranks=2)]
    *_, of_late, of_posted = found = unpacked((), traces)[1]
    for trace, steps in zip(traces, found, strict=True):
        held = contributions(trace)
        for step, shown in enumerate(steps):
            cells = [[[c.counts and list(c.counts), c.text] for c in row] for row in held.at(step)]
            assert shown["cells"] == cells
            assert shown["messages"] == sum(one.step == step for one in trace.messages)
        assert len(steps) == trace.steps + 1
        assert steps[-1]["sent"] == list(trace.bytes_sent)

    def lines(steps, step):
        return [(one["line"], one["busy"], one["waiting"]) for one in steps[step]["lines"]]

    assert lines(of_late, 1) == [(3, [0], []), (6, [1], [2])]
    assert lines(of_late, 2) == [(4, [0], []), (6, [2], [])]  # rank 1 has ended
    assert lines(of_posted, 1) == [(4, [0, 1], []), (5, [], [0, 1])]
