"""The player as HTML: what a run did is inside, whole, small and harmless."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from labkit import collectives
from labkit.collectives.contributions import contributions
from labkit.views import embed
from labkit.views.collective_figure import still
from labkit.views.player_page import MODULES, content, packed, page

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="There is no node here to run JavaScript.")
LINK = {"latency": 1e-6, "bandwidth": 1e9}
# What the page itself finds for every step, rank and cell.
UNPACK = """
import { readFileSync } from "node:fs";
import { RunData, unpack } from "%s";
const data = new RunData(await unpack(readFileSync(0, "utf8")));
const range = (count) => [...Array(count).keys()];
process.stdout.write(JSON.stringify(range(data.steps + 1).map((step) => ({
  cells: range(data.ranks).map((rank) => range(data.columns).map((cell) => {
    const { held, text } = data.cell(step, rank, cell);
    return [held && held.counts, text];
  })),
  sent: [...data.sent[step]], lines: data.lines(step), messages: data.messages[step].length,
}))));
"""


def ran(name, ranks):
    return collectives.run(getattr(collectives.programs, name), ranks=ranks)


def node(*arguments, said=None):
    answer = subprocess.run(
        [NODE, *map(str, arguments)], input=said, capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def unpacked(trace):
    script = UNPACK % (embed.STATIC / "player_data.mjs").as_uri()
    data = packed(trace, contributions(trace), trace.timed(**LINK))
    return json.loads(node("--input-type=module", "-e", script, said=data))


@needs_node
@pytest.mark.parametrize(
    ("name", "ranks"),
    [("ring_all_reduce", 5), ("tree_all_reduce", 6), ("reduce", 1)],
)
def test_the_page_shows_what_each_rank_holds_at_each_step(name, ranks):
    trace = ran(name, ranks)
    held = contributions(trace)
    found = unpacked(trace)
    for step, shown in enumerate(found):
        cells = [[[c.counts and list(c.counts), c.text] for c in row] for row in held.at(step)]
        assert shown["cells"] == cells
        assert shown["messages"] == sum(one.step == step for one in trace.messages)
    assert len(found) == trace.steps + 1
    assert found[-1]["sent"] == list(trace.bytes_sent)


@needs_node
def test_the_page_names_the_line_of_each_rank_and_the_call_that_posted_a_message():
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

    def lines(program, ranks, step):
        found = unpacked(collectives.run(program, ranks=ranks))[step]["lines"]
        return [(one["line"], one["busy"], one["waiting"]) for one in found]

    assert lines(late, 3, 1) == [(3, [0], []), (6, [1], [2])]
    assert lines(late, 3, 2) == [(4, [0], []), (6, [2], [])]  # rank 1 has ended
    assert lines(posted, 2, 1) == [(4, [0, 1], []), (5, [], [0, 1])]


def test_the_clock_only_goes_forward_and_ends_when_the_last_rank_has_worked():
    trace = ran("naive_all_reduce", 4)
    timed = trace.timed(latency=1e-6, bandwidth=1e9, reduction=1e-9)
    clock = content(trace, contributions(trace), timed)["clock"]
    assert clock == sorted(clock)
    assert (clock[0], clock[-1]) == (0, pytest.approx(timed.seconds, rel=1e-5))


def test_a_ring_of_eight_from_a_file_is_small_always_the_same_and_asks_nobody(tmp_path):
    trace = ran("ring_all_reduce", 8)
    trace = type(trace).load(trace.save(tmp_path / "trace.json"))
    fragment, again = (trace.player().html() for _ in range(2))
    assert fragment == again
    assert len(fragment) < 63_000  # matplotlib's to_jshtml of the same has 1.27 MB
    everything = embed.bundle(MODULES) + embed.style("player") + fragment
    assert re.findall(r"https?://|\bfetch\(|XMLHttpRequest|@import|\beval\(", everything) == []


@needs_node
def test_the_joined_modules_are_a_program_without_two_equal_names(tmp_path):
    whole = embed.bundle(MODULES)
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", whole, re.MULTILINE)
    assert sorted(names) == sorted(set(names))
    script = tmp_path / "player.js"
    script.write_text(f"(() => {{ 'use strict';\n{whole}\n}})();")
    node("--check", script)


def test_a_program_with_an_evil_text_stays_text():
    def evil(comm, buffer):
        comm.Barrier()  # </script><img src=x onerror="alert(1)"> <!--

    trace = collectives.run(evil, ranks=2)
    alt = '"><script>alert(1)</script>'
    fragment = page(trace, contributions(trace), trace.timed(**LINK), alt=alt)
    assert fragment.count("</script>") == 1
    assert not re.search("<img src=x|<!--", fragment)


@pytest.mark.parametrize(("ranks", "least"), [(2, 3_000), (8, 10_000), (17, 10_000)])
def test_the_still_picture_inside_is_small(ranks, least):
    trace = ran("ring_all_reduce", ranks)
    assert least < len(still(trace, contributions(trace), "A run.", small=True).png) < 30_000
