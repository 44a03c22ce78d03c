"""The player as HTML: what a run did is inside, whole, small and harmless."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import shutil
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from labkit import collectives
from labkit.views import embed
from labkit.views.player_data import ENDED, clock, content, packed
from labkit.views.player_page import MODULES, page
from labkit.views.player_still import PALETTE, still

HERE = Path(__file__).parent
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="There is no node here to run JavaScript.")
LINK = {"latency": 1e-6, "bandwidth": 1e9}
# What the page itself finds for every step, rank and cell.
FILM = """
import { readFileSync } from "node:fs";
import { Film, unpack } from "%s";
const film = new Film(await unpack(readFileSync(0, "utf8")));
const steps = [];
for (let step = 0; step <= film.steps; step += 1) steps.push({
  held: [...Array(film.ranks).keys()].map((rank) => [...Array(film.columns).keys()].map((cell) => {
    const { counts, text } = film.holding(step, rank, cell);
    return [counts === null ? null : [...counts], text];
  })),
  sent: [...film.bytes(step)], lines: film.lines(step), messages: film.messages(step).length,
});
process.stdout.write(JSON.stringify(steps));
"""


def program(name):
    return getattr(collectives.programs, name)


def film(trace, story):
    answer = subprocess.run(
        [NODE, "--input-type=module", "-e", FILM % (embed.STATIC / "player_film.mjs").as_uri()],
        input=packed(trace, story, trace.timed(**LINK)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@needs_node
@pytest.mark.parametrize(
    ("name", "ranks"),
    [("ring_all_reduce", 5), ("tree_all_reduce", 6), ("scatter", 4), ("reduce", 1)],
)
def test_the_page_shows_what_the_story_tells(name, ranks):
    trace = collectives.run(program(name), ranks=ranks)
    story = trace.story()
    found = film(trace, story)
    assert len(found) == trace.steps + 1
    for step, shown in enumerate(found):
        told = [
            [[None if c.counts is None else list(c.counts), c.text] for c in row]
            for row in story.at(step)
        ]
        assert shown["held"] == told
        assert shown["messages"] == sum(one.step == step for one in trace.messages)
    assert found[-1]["sent"] == list(trace.bytes_sent)


@needs_node
def test_the_page_names_the_line_of_each_rank():
    def late(comm, buffer):
        if comm.Get_rank() == 0:
            comm.Send(buffer, dest=1)
            comm.Send(buffer, dest=2)
        else:
            comm.Recv(buffer, source=0)

    found = film(trace := collectives.run(late, ranks=3), trace.story())
    lines = [(one["line"], one["busy"], one["waiting"]) for one in found[1]["lines"]]
    assert lines == [(3, [0], []), (6, [1], [2])]
    lines = [(one["line"], one["busy"], one["waiting"]) for one in found[2]["lines"]]
    assert lines == [(4, [0], []), (6, [2], [])]  # rank 1 has ended


@needs_node
def test_a_message_of_a_non_blocking_call_lights_the_call_that_posted_it():
    def posted(comm, buffer):
        other = 1 - comm.Get_rank()
        received = np.empty_like(buffer)
        requests = [comm.Irecv(received, source=other), comm.Isend(buffer, dest=other)]
        type(requests[0]).Waitall(requests)
        buffer += received

    found = film(trace := collectives.run(posted, ranks=2), trace.story())
    lines = [(one["line"], one["busy"], one["waiting"]) for one in found[1]["lines"]]
    assert lines == [(4, [0, 1], []), (5, [], [0, 1])]


def test_the_clock_only_goes_forward_and_ends_when_the_last_rank_has_worked():
    trace = collectives.run(program("naive_all_reduce"), ranks=4)
    timed = trace.timed(latency=1e-6, bandwidth=1e9, reduction=1e-9)
    made = content(trace, trace.story(), timed)
    assert made["clock"] == sorted(made["clock"])
    assert made["clock"][0] == 0
    assert made["clock"][-1] == pytest.approx(timed.seconds, rel=1e-5)
    assert made["link"].startswith("modelled: ")
    assert made["where"][-1].count(ENDED) == sum(
        max(call.step for call in trace.calls if call.rank == rank) < trace.steps
        for rank in range(4)
    )


def test_a_step_is_over_when_all_before_it_have_arrived_too():
    # A step says what depends on what; a slow link can make an early one the last to arrive.
    messages = tuple(SimpleNamespace(step=step) for step in (1, 2, 2))
    trace = SimpleNamespace(steps=3, messages=messages)
    assert clock(trace, SimpleNamespace(ends=(5.0, 1.0, 2.0), seconds=6.0)) == [0, 5, 5, 6]


def test_a_run_of_which_nothing_is_known_can_be_shown(tmp_path):
    file = collectives.run(program("barrier"), ranks=3).save(tmp_path / "trace.json")
    trace = collectives.Trace.load(file)
    assert "<script>" in trace.player().html()


def test_the_same_run_is_the_same_html_and_another_run_has_another_key():
    def html(ranks):
        return collectives.run(program("ring_all_reduce"), ranks=ranks).player().html()

    key = re.compile(r'data-labkit-player="(\w+)"')
    assert html(4) == html(4)
    assert key.search(html(4))[1] != key.search(html(3))[1]


def test_a_ring_of_eight_is_small_and_asks_nobody():
    fragment = collectives.run(program("ring_all_reduce"), ranks=8).player().html()
    # matplotlib's to_jshtml of the same has 1.2 MB.
    assert len(fragment) < 50_000
    everything = embed.bundle(MODULES) + embed.style("player") + fragment
    # The name of SVG's language is no address that anybody asks.
    everything = everything.replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://|\bfetch\(|XMLHttpRequest|@import|\beval\(", everything) == []


def test_no_two_modules_use_the_same_name():
    # Joined they are one program: a second function of a name would silently replace the first.
    whole = embed.bundle(MODULES)
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", whole, re.MULTILINE)
    assert sorted(names) == sorted(set(names))
    assert not re.search(r"^(import|export) ", whole, re.MULTILINE)
    assert {f"{name}.mjs" for name in MODULES} >= {
        path.name for path in embed.STATIC.glob("player*.mjs")
    }


@needs_node
def test_the_joined_modules_are_a_program(tmp_path):
    script = tmp_path / "player.js"
    script.write_text(f"(() => {{ 'use strict';\n{embed.bundle(MODULES)}\n}})();")
    answer = subprocess.run([NODE, "--check", script], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr


def test_a_program_with_an_evil_text_stays_text():
    def evil(comm, buffer):
        comm.Barrier()  # </script><img src=x onerror="alert(1)"> <!--

    trace = collectives.run(evil, ranks=2)
    alt = '"><script>alert(1)</script>'
    fragment = page(trace, trace.story(), trace.timed(**LINK), alt=alt)
    assert fragment.count("</script>") == 1
    assert "<img" not in fragment
    assert "<!--" not in fragment


# ---- the still picture


@pytest.mark.parametrize("ranks", [2, 8, 33])
def test_the_still_picture_is_small_and_in_few_colours(ranks):
    from PIL import Image

    trace = collectives.run(program("ring_all_reduce"), ranks=ranks)
    picture = still(trace, trace.story(), "A ring.")
    assert len(picture.png) < 14_000
    assert picture.width == 800
    drawn = Image.open(io.BytesIO(picture.png))
    assert struct.unpack(">BB", picture.png[24:26]) == (4, 3)  # bits a pixel, and a palette
    used = {index for _, index in drawn.getcolors()}
    assert used <= set(range(len(PALETTE)))
    # Every rank has its colour where there are eight or fewer; words are there in any case.
    assert used >= (set(range(1, ranks + 1)) if ranks <= 8 else {10, 11}) | {9, 12, 15}


def test_the_still_picture_marks_what_is_counted_twice():
    def twice(comm, buffer):
        received = np.empty_like(buffer)
        other = 1 - comm.Get_rank()
        comm.Sendrecv(buffer, dest=other, recvbuf=received, source=other)
        buffer += 2 * received

    def dark(trace):
        from PIL import Image

        picture = still(trace, trace.story(), "Two ranks.")
        return {index: n for n, index in Image.open(io.BytesIO(picture.png)).getcolors()}[15]

    once = collectives.run(program("broadcast"), ranks=2)
    assert dark(collectives.run(twice, ranks=2)) > dark(once)


def test_what_is_packed_can_be_read_with_plain_tools():
    trace = collectives.run(program("broadcast"), ranks=3)
    text = packed(trace, trace.story(), trace.timed(**LINK))
    found = json.loads(gzip.decompress(base64.b64decode(text)))
    assert found["program"] == "broadcast"
    assert sum(found["messages"]["nbytes"]) == sum(trace.bytes_sent)
