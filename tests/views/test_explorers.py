"""The explorers' pages compute what Python computes, and each still picture shows its page."""

import json
import math
import random
import sys
from html import escape
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import labkit
from labkit import collectives, memory, updates
from labkit.choosing import large_systems
from labkit.choosing.mesh import DECODERS, mesh
from labkit.collectives.formulas import FORMULAS
from labkit.exercises.judges.large_models.long_sequences import visible, zigzag
from labkit.known_hardware import GPUS
from labkit.memory import expert_models
from labkit.views import FOLDER
from labkit.views.embed import path_of
from tests.views.test_pages import needs_node, node

sys.path.insert(0, str(FOLDER))
from _explorers import NAMES as EXPLORERS
from _explorers import code

pytestmark = needs_node
NAMES = {
    "naive": "naive_all_reduce",
    "tree": "tree_all_reduce",
    "recursive doubling": "recursive_doubling_all_reduce",
    "rabenseifner": "rabenseifner_all_reduce",
    "ring": "ring_all_reduce",
}


def in_the_page(module, expression, cases):
    """`expression` of each case, with what the module exports."""
    program = f"""
import {{ readFileSync }} from "node:fs";
import * as page from "{path_of(f"explore_{module}").as_uri()}";
import {{ crossings }} from "{path_of("explorer").as_uri()}";
const found = JSON.parse(readFileSync(0, "utf8")).map((one) => {expression});
process.stdout.write(JSON.stringify(found));
"""
    return json.loads(node("--input-type=module", "-e", program, said=json.dumps(cases)))


@pytest.fixture
def dice():
    return random.Random(27)


def between(dice, low, high):
    """A number of any size between the two."""
    return low * (high / low) ** dice.random()


def link(dice):
    return {"latency": between(dice, 1e-7, 1e-3), "bandwidth": between(dice, 1e6, 1e12)}


def test_the_cost_of_an_all_reduce(dice):
    cases = [
        {"name": name, "ranks": dice.randint(2, 20_000), "nbytes": between(dice, 1, 1e10),
         **link(dice)}
        for name in NAMES for _ in range(60)
    ]  # fmt: skip
    for one, found in zip(cases, in_the_page("all_reduce", "page.seconds(one.name, one)", cases),
                          strict=True):  # fmt: skip
        terms = FORMULAS[NAMES[one["name"]]].terms(one["ranks"])
        seconds = terms.messages * one["latency"] + terms.bytes * one["nbytes"] / one["bandwidth"]
        assert found == pytest.approx(seconds), one


def test_where_another_all_reduce_becomes_the_fastest(dice):
    cases = [{"along": "nbytes", "ranks": 2**k, **link(dice)} for k in range(2, 15)]
    found = in_the_page("all_reduce", "crossings(page.costsAlong(one))", cases)
    for one, marks in zip(cases, found, strict=True):
        links = {"latency": one["latency"], "bandwidth": one["bandwidth"]}
        ends = [1e3, *(mark["at"] for mark in marks), 1e10]
        fastest = [
            min(NAMES, key=lambda n: collectives.cost(NAMES[n], one["ranks"], size, **links))
            for size in (math.sqrt(low * high) for low, high in pairwise(ends))
        ]
        assert fastest[1:] == [mark["name"] for mark in marks]
        for mark, before in zip(marks, fastest, strict=False):
            at = [collectives.cost(NAMES[n], one["ranks"], mark["at"], **links)
                  for n in (before, mark["name"])]  # fmt: skip
            assert at[0] == pytest.approx(at[1], rel=0.02)


def test_the_backward_pass_with_its_buckets(dice):
    cases = []
    for _ in range(100):
        layers = [
            (between(dice, 1e-5, 1e-2), dice.choice((0, between(dice, 1e3, 1e8))))
            for _ in range(dice.randint(1, 30))
        ]
        layers.append((1e-3, 1e6))
        bucket = dice.choice((0, between(dice, 1e3, 1e9)))
        cases.append({"layers": layers, "ranks": dice.randint(2, 500), "bucket": bucket,
                      **link(dice)})  # fmt: skip
    for one, found in zip(cases, in_the_page("buckets", "page.overlap(one.layers, one)", cases),
                          strict=True):  # fmt: skip
        plan = collectives.overlap(**one)
        assert found["seconds"] == pytest.approx(plan.seconds)
        assert found["backward"] == pytest.approx(plan.backward[-1][1])
        assert [(b["first"], b["last"]) for b in found["buckets"]] == [b[:2] for b in plan.buckets]
        ends = [(b["start"], b["end"]) for b in found["buckets"]]
        assert ends == [pytest.approx(b[3:]) for b in plan.buckets]


def test_the_shares_of_a_job_with_failures(dice):
    cases = [
        {"interval": between(dice, 1, 1e6), "mtbf": between(dice, 1e3, 1e7),
         "write": between(dice, 0.1, 3e3), "restart": dice.choice((0, between(dice, 1, 3600)))}
        for _ in range(200)
    ]  # fmt: skip
    shown = (
        "[page.goodput(one.interval, one), page.young(one.mtbf, one.write), page.bestInterval(one)]"
    )
    for one, (shares, young, best) in zip(cases, in_the_page("checkpoints", shown, cases),
                                          strict=True):  # fmt: skip
        costs = {name: one[name] for name in ("mtbf", "write", "restart")}
        of = SimpleNamespace(**shares)
        wanted = large_systems.goodput(one["interval"], **costs)
        for name in ("training", "writing", "failures"):
            assert getattr(of, name) == pytest.approx(getattr(wanted, name), abs=1e-9)
        assert young == pytest.approx(
            large_systems.checkpoint_interval(one["mtbf"], write=one["write"])
        )
        least = large_systems.goodput(best, **costs).training
        assert all(least >= large_systems.goodput(best * near, **costs).training
                   for near in (0.9, 1.1, 0.1, 10))  # fmt: skip


def test_the_memory_of_each_stage(dice):
    cases = []
    for _ in range(200):
        tensor, pipeline = (2 ** dice.randint(0, 3) for _ in range(2))
        heads = 8 * dice.randint(1, 12)
        cases.append({
            "layers": pipeline * dice.randint(1, 20), "heads": heads,
            "hidden": heads * dice.randint(16, 256), "sequence": 512 * dice.randint(1, 16),
            "vocabulary": dice.randint(30_000, 100_000), "micro_batch": dice.randint(1, 16),
            "tensor": tensor, "pipeline": pipeline, "stage": dice.randrange(pipeline),
            "data": dice.choice((1, 2, 16, 100)), "zero": dice.randrange(4),
            "sequence_parallel": dice.random() < 0.5,
            "recompute": dice.choice(("none", "selective", "full")),
        })  # fmt: skip
    for one, found in zip(cases, in_the_page("memory", "page.footprint(one)", cases),
                          strict=True):  # fmt: skip
        parts = {part.name: part.bytes for part in memory.transformer(**one).parts}
        assert {name: size for name, size in found.items() if size or name in parts} == {
            name: pytest.approx(size, abs=32, rel=1e-12) for name, size in parts.items()
        }, one


def test_the_five_dimensions_of_a_mesh(dice):
    machines, decoders = in_the_page("mesh", "[page.MACHINES, page.DECODERS]", [0])[0]
    assert decoders == {name: vars(one) for name, one in DECODERS.items()}
    cases = []
    for _ in range(300):
        model, gpu = dice.choice([*DECODERS]), dice.choice([*machines])
        data, context = 2 ** dice.randint(0, 10), 2 ** dice.randint(0, 6)
        most = min(data * context, DECODERS[model].experts)
        cases.append({
            "model": model, "gpu": gpu, "data": data, "context": context,
            "tensor": 2 ** dice.randint(0, 4), "pipeline": dice.choice((1, 2, 4, 8, 16)),
            "expert": 2 ** dice.randint(0, int(math.log2(most))),
            "sequence": 4096 * 2 ** dice.randint(0, 8), "recompute": dice.random() < 0.5,
        })  # fmt: skip
    shown = "page.mesh(page.DECODERS[one.model], one, page.MACHINES[one.gpu])"
    for one, found in zip(cases, in_the_page("mesh", shown, cases), strict=True):
        gpu, network = GPUS[one["gpu"]], machines[one["gpu"]]["network"]
        assert (gpu.memory, gpu.flops, gpu.link_bandwidth) == tuple(
            machines[one["gpu"]][name] for name in ("memory", "flops", "link")
        )
        sizes = {name: value for name, value in one.items() if name not in ("model", "gpu")}
        wanted = mesh(DECODERS[one["model"]], **sizes, gpu=gpu, network=network)
        for name, value in vars(wanted).items():
            near = pytest.approx(value, rel=1e-9, abs=1e-6) if isinstance(value, dict) else value
            assert found[name] == near, (name, one)


def test_the_load_of_skewed_experts(dice):
    cases = []
    for _ in range(100):
        ranks = 2 ** dice.randint(0, 3)
        experts = ranks * dice.randint(1, 8)
        cases.append({
            "experts": experts, "ranks": ranks, "chosen": dice.randint(1, min(8, experts)),
            "skew": dice.choice((0, between(dice, 0.1, 3))), "capacity": between(dice, 0.5, 9),
        })  # fmt: skip
    for one, found in zip(cases, in_the_page("experts", "page.load(one)", cases), strict=True):
        wanted = expert_models.load(**one)
        assert found["experts"] == pytest.approx(wanted.experts), one
        assert found["dropped"] == pytest.approx(wanted.dropped, abs=1e-12), one
        assert found["slowest"] == pytest.approx(wanted.slowest), one


def test_delayed_gradient_descent(dice):
    cases = [{"delay": dice.randrange(21), "step": between(dice, 0.02, 2.5)} for _ in range(60)]
    shown = "[page.delayed(one.step, one.delay, 60), page.stabilityLimit(one.delay)]"
    for one, (x, limit) in zip(cases, in_the_page("stability", shown, cases), strict=True):
        assert x == pytest.approx(updates.delayed(one["step"], one["delay"], 60))
        assert limit == pytest.approx(updates.stability_limit(one["delay"]))


def test_the_map_that_is_tried_changes_its_colour_where_the_formula_says():
    cases = [
        {"delay": delay, "step": updates.stability_limit(delay) * near}
        for delay in range(21) for near in (0.5, 0.97, 1.03, 2, 20)
    ]  # fmt: skip
    found = in_the_page("stability", "page.growth(one.step, one.delay)", cases)
    for one, rate in zip(cases, found, strict=True):
        assert (rate > 0) == (one["step"] > updates.stability_limit(one["delay"])), one


@pytest.mark.parametrize("name", EXPLORERS)
def test_an_explorer_begins_at_values_that_its_controls_have(name):
    has = "({ values, options, value }) => (values ?? options.map(([one]) => one)).includes(value)"
    assert all(in_the_page(name, f"page.controls.map({has})", [0])[0])


@pytest.mark.parametrize("name", EXPLORERS)
def test_the_still_picture_shows_the_page(name):
    with Image.open(FOLDER / "explorers" / f"{name}.png") as file:
        assert file.info["Code"] == code(name), "draw it: python images/_explorers.py"
    player = labkit.explore(name)
    assert "labkit-explorer" in player.html()
    assert len(player.html()) < 60_000
    assert escape(player.alt) in player.html()


def test_the_work_of_each_rank_in_ring_attention(dice):
    cases = [
        {"ranks": dice.randint(2, 9), "tokens": 2 ** dice.randint(1, 4), "mask": "causal",
         "placement": dice.choice(("contiguous", "zigzag", "striped"))}
        for _ in range(60)
    ]  # fmt: skip
    found = in_the_page("ring_attention", "[page.work(one), page.usefulShare(one)]", cases)
    for one, (work, share) in zip(cases, found, strict=True):
        ranks, tokens = one["ranks"], one["tokens"]
        order = np.arange(ranks * tokens)
        places = {
            "contiguous": np.split(order, ranks),
            "zigzag": zigzag(ranks, len(order)),
            "striped": list(order.reshape(tokens, ranks).T),
        }[one["placement"]]
        wanted = [[visible(places[r], places[r - hop]) for r in range(ranks)]
                  for hop in range(ranks)]  # fmt: skip
        assert [[pairs * tokens**2 for pairs in hop] for hop in work] == wanted, one
        lasts = sum(max(hop) for hop in wanted)
        assert share == pytest.approx(sum(map(sum, wanted)) / (ranks * lasts))
    large = [{"ranks": p, "tokens": 8192, "mask": "causal", "placement": "contiguous"}
             for p in (2, 4, 8)]  # fmt: skip
    shares = in_the_page("ring_attention", "page.usefulShare(one)", large)
    assert shares == pytest.approx([2 / 3, 4 / 7, 8 / 15], rel=1e-3)
