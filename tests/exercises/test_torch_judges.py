"""The judges of PyTorch answers: right programs are accepted, and each mistake has its name."""

import pytest

from labkit.exercises import judge_names
from labkit.exercises.judges.pytorch.torch_training import SAYS
from labkit.exercises.task import NotJudged, Wrong
from tests.cluster.test_frameworks import TIMEOUT, cluster
from tests.exercises import torch_answers
from tests.exercises.cells import NEEDS_TORCH
from tests.exercises.torch_answers import RIGHT, WRONG

pytestmark = NEEDS_TORCH


def judge(call, text):
    eval(call, vars(judge_names))(torch_answers.answer(text))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        pytest.param(call, text, id=f"{call} {n}")
        for call in RIGHT
        for n, text in enumerate(RIGHT[call])
    ],
)
def test_a_right_program_is_accepted(call, text):
    judge(call, text)


@pytest.mark.parametrize(
    ("call", "key", "text", "old", "new"),
    [pytest.param(*row, id=f"{row[0]} {row[1]}") for row in WRONG],
)
def test_a_mistake_is_named(call, key, text, old, new):
    assert old in text
    with pytest.raises(Wrong) as found:
        judge(call, text.replace(old, new, 1))
    assert found.value.key == key, found.value


def test_each_sentence_is_said_to_some_mistake():
    elsewhere = {"lacks", "share", "tied", "units", "other"}
    assert {*SAYS} - {key for _, key, *_ in WRONG} <= elsewhere


def test_a_call_that_ranks_lack_here_is_not_judged():
    text = torch_answers.DDP.replace(
        "    handles = []\n", "    handles = []\n    dist.monitored_barrier()\n", 1
    )
    with pytest.raises(NotJudged):
        judge("torch_ddp()", text)


def test_ranks_share_no_variable_of_the_program():
    """Else a rank could read what another has computed, and send nothing."""
    text = torch_answers.DDP.replace(
        torch_answers.REDUCE, "every.append(parameter.grad)\n        assert len(every) < 6"
    ).replace("\ndef my", "\nevery = []\n\ndef my")
    with pytest.raises(Wrong) as found:
        judge("torch_ddp()", text.replace("range(3)", "range(1)"))
    assert found.value.key in ("local", "raised")


def test_what_the_process_of_an_answer_says_must_be_of_these_numbers():
    """In `labkit grade` an answer may send what it likes: nothing, or a right run that it knows."""
    answer, heard = torch_answers.answer(torch_answers.METRICS), []

    def real(observe, *args):
        heard.append(observe(torch_answers.answer(torch_answers.METRICS), *args))
        return heard[0]

    answer._beside = real
    judge_names.torch_metrics()(answer)
    with pytest.raises(Wrong):  # the first run again, and the examples are others
        judge_names.torch_metrics()(answer)
    answer._beside = lambda *_: [[]]
    with pytest.raises(ValueError, match="zip"):
        judge_names.torch_metrics()(answer)


def on_ranks(program, ranks=2):
    """What program(rank, watch) returns or raises on these threads, and why they cannot go on."""

    def in_rank(_, program, ranks):
        import labkit.exercises.judges.pytorch.torch_ranks as torch_ranks

        world = torch_ranks.run(lambda world, rank: program(rank, world.watches[rank]), ranks)
        events = [[(one.what, one.waited) for one in its.events] for its in world.watches]
        return (
            world.results,
            {rank: repr(one) for rank, one in world.faults.items()},
            world.why,
            events,
        )

    with cluster("torch", 1) as c:
        return c.run(in_rank, program, ranks, timeout=TIMEOUT, show=False)[0]


def test_what_torch_hides_and_the_engine_needs_is_still_there():
    def names(_):
        import torch
        from torch.testing._internal.distributed import multi_threaded_pg

        return hasattr(multi_threaded_pg, "_install_threaded_pg"), hasattr(
            torch._C._distributed_c10d, "_set_thread_isolation_mode"
        )

    with cluster("torch", 1) as c:
        assert c.run(names, timeout=TIMEOUT, show=False)[0] == (True, True)


def test_a_result_is_nan_until_its_handle_is_waited_for_and_each_rank_draws_its_own_numbers():
    def program(rank, _):
        import torch
        import torch.distributed as dist

        found = torch.full((2,), rank + 1.0)
        handle = dist.all_reduce(found, async_op=True)
        before = bool(found.isnan().all())
        first = torch.rand(1).item()
        handle.wait()
        return before, found.tolist(), first, torch.rand(1).item()

    results, faults, why, _ = on_ranks(program)
    assert (faults, why) == ({}, "")
    assert [one[:2] for one in results.values()] == [(True, [3.0, 3.0])] * 2
    assert len({number for one in results.values() for number in one[2:]}) == 4
    assert on_ranks(program)[0] == results, "each run is the same run"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("rank or dist.barrier()", "rank 1 has ended"),
        ("dist.barrier() if rank else dist.all_reduce(x)", "rank 1 barrier"),
        ("dist.broadcast(x, src=rank)", "from rank 1"),
        ("dist.all_reduce(x[: rank + 1])", "different"),
        ("dist.recv(x, src=1 - rank)", "recv from rank"),
    ],
)
def test_ranks_that_cannot_go_on_are_found_at_once(call, words):
    def program(rank, _):
        import torch
        import torch.distributed as dist

        eval(call, {"rank": rank, "dist": dist, "x": torch.ones(4)})

    _, faults, why, _ = on_ranks(program)
    assert not faults
    assert words in why


def test_the_bytes_of_a_sharded_model_are_counted_with_its_optimizers_state():
    """Of a DTensor, which an operator of torch gives to another, this rank's part counts."""

    def program(_, watch):
        import torch
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(torch.nn.Linear(64, 64, bias=False))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 64)).sum().backward()
            optimizer.step()
        watch.mark()
        return watch.marks[-1][0] / (4 * 64 * 64)

    results, faults, why, _ = on_ranks(program, 4)
    assert (faults, why) == ({}, "")
    # A quarter each of the weight, its gradient, and two moments.
    assert all(1 <= held < 1.1 for held in results.values()), results


def test_torchs_own_programs_run_on_it_as_on_one_process():
    """Groups, meshes, tensor parallelism, uneven inputs, a pipeline, objects, all-to-all."""

    def program(rank, _):
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.distributed.algorithms.join import Join
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )
        from torch.nn.parallel import DistributedDataParallel

        def make():
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
        whole = make()
        right = whole(x)
        right.square().mean().backward()
        gradient, found = whole[0].weight.grad, {}
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        model = make()
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        model(x).square().mean().backward()
        found["FSDP x TP"] = model[0].weight.grad.full_tensor(), gradient
        model = fully_shard(make(), mesh=mesh)
        model(x).square().mean().backward()
        found["HSDP"] = model[0].weight.grad.full_tensor(), gradient
        model = DistributedDataParallel(make())
        with Join([model]):
            for _ in range(1 + (rank == 0)):
                model(x).square().mean().backward()
        found["Join"] = torch.zeros(1), torch.zeros(1)
        pair = dist.new_group([0, 1])
        if rank < 2:
            layers = make()
            part = layers[:2] if rank == 0 else layers[2:]
            stage = PipelineStage(part, rank, 2, torch.device("cpu"), group=pair)
            schedule = Schedule1F1B(stage, 4, loss_fn=lambda h, y: (h - y).square().mean())
            y = torch.zeros(8, 8)
            schedule.step(*([x] if rank == 0 else []), **({"target": y} if rank else {}))
            mine = part[0].weight.grad
            found["1F1B"] = mine, whole[2 * rank].weight.grad
        objects = [None] * 4
        dist.all_gather_object(objects, {"rank": rank})
        sent, got = torch.arange(4.0) + 4 * rank, torch.empty(4)
        dist.all_to_all_single(got, sent)
        found["all_to_all"] = got, torch.arange(4.0) * 4 + rank
        found["objects"] = torch.tensor([one["rank"] for one in objects]), torch.arange(4)
        return {name: float((a - b).abs().max()) for name, (a, b) in found.items()}

    results, faults, why, _ = on_ranks(program, 4)
    assert (faults, why) == ({}, "")
    assert all(far < 1e-6 for one in results.values() for far in one.values()), results
