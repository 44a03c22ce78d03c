"""The classic mistakes of distributed PyTorch programs, as rules over a program's text.

What a rule cannot see, such as whether shares are uneven, it says with an "if".
"""

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.training.diagnosis import Program

RESULT, HANGS, MEMORY = "wrong result", "hangs or stops", "wrong memory"
RANKS = r"(?:[\w.]*get_world_size\(\)|\w*world_size|n?_?ranks)"
RANK = r"(?:\w*rank|[\w.]*get_rank\(\))"
DIVIDED = rf"/ {RANKS}|/= {RANKS}|\bdiv_?\({RANKS}"
SUMS = ("all_reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor")
COLLECTIVES = (
    *SUMS, "all_gather", "all_gather_single", "all_gather_object", "barrier",
    "full_tensor", "get_state_dict", "get_model_state_dict", "clip_grad_norm_sharded", "gathered",
)  # fmt: skip

# Of each defect how bad it is, what it does, and how to fix it.
TORCH = {
    "no broadcast": (
        RESULT, "Ranks that begin with different weights train different models.",
        "Broadcast those of rank 0 first, or wrap the model in DistributedDataParallel.",
    ),
    "buffers": (
        RESULT, "Buffers, such as BatchNorm's statistics, stay different if there are some.",
        "Broadcast model.buffers(), too, or all of model.state_dict().values().",
    ),
    "divided twice": (
        RESULT, "DDP, ReduceOp.AVG or a weight divides, too: gradients are N times too small.",
        "Divide once.",
    ),
    "not divided": (
        RESULT, "Gradients are summed over the ranks: each update is N times too large.",
        "Divide by the ranks, or with uneven shares weigh each by its examples over all examples.",
    ),
    "mean of means": (
        RESULT, "The ranks' means are averaged: with uneven shares that is not the mean.",
        "All-reduce sums and counts, and divide afterwards.",
    ),
    "no zero_grad": (
        RESULT, "backward() adds to .grad: gradients of earlier steps stay.",
        "Call optimizer.zero_grad() in each step.",
    ),
    "bucket": (
        RESULT, "The last or first bucket is never sent, so its gradients are the rank's own.",
        "Send what is left after the loop.",
    ),
    "frozen hook": (
        HANGS, "A parameter with requires_grad False takes no hook.",
        "Register it where parameter.requires_grad.",
    ),
    "tied weights": (
        RESULT, "A weight that two layers share comes twice, and is reduced twice.",
        "Leave out remove_duplicate=False: parameters() has it once.",
    ),
    "no wait": (
        RESULT, "An asynchronous result is not there until its handle was waited for.",
        "Keep what async_op=True returns, and call .wait() before you use the tensor.",
    ),
    "rank 0 alone": (
        HANGS, "One rank alone calls what all must call, and waits for the others for ever.",
        "Let all ranks call it, and rank 0 write what comes back.",
    ),
    "no set_epoch": (
        RESULT, "DistributedSampler shuffles in the same way in each epoch.",
        "Call sampler.set_epoch(epoch) at the start of each.",
    ),
    "no_sync": (
        RESULT, "Every backward() is inside no_sync, also the last: nothing is reduced.",
        "Leave the last micro-batch outside.",
    ),
    "whole state": (
        MEMORY, "Each rank updates its own part, and its optimizer has state for all.",
        "Give the optimizer only the parameters that this rank owns.",
    ),
    "kept gathered": (
        MEMORY, "Whole weights stay on each rank between forward and backward.",
        "Free them after the forward pass, and gather them again.",
    ),
}  # fmt: skip


def within(node: Any, *others: Any) -> bool:
    """Whether all others are inside these lines."""
    return all(node.lineno <= one.lineno and one.end_lineno <= node.end_lineno for one in others)


def torch_defects(program: "Program") -> Iterator[tuple[str, Any]]:
    """Yields the name of each defect and the node at which it is."""
    source = program.source
    loops = [node for node in program.nodes if isinstance(node, ast.For)]
    special = re.search(r"BatchNorm|register_buffer|requires_grad_?\W+False", source)
    unknown = special or not re.search(r"\bnn\.(Module|Sequential|Linear)\b", source)
    replica = re.search(r"DistributedDataParallel\(|\bDDP\(|fully_shard\(|\bFSDP\(", source)

    def around(node: Any) -> str:
        """What the loops around a call run over."""
        return " ".join(program.text(one.iter) for one in loops if within(one, node))

    sums = [one for one in program.calls(*SUMS) if "grad" in program.text(one) + around(one)]
    sent = [program.text(one) + around(one) for one in program.calls("broadcast")]
    # Equal by other means: seeds, shards, or a hook of DDP, which has sent the weights.
    same = r"manual_seed|load_state_dict|\bseed|reduce_scatter| % |\bbucket\.\w+\("
    if sums and not replica and not re.search(same, source):
        if not [text for text in sent if not text.endswith("model.buffers()")]:
            yield "no broadcast", sums[0]
        elif unknown and not re.search(r"buffers\(|state_dict", source):
            yield "buffers", program.calls("broadcast")[0]
    yield from _divisions(program, sums, bool(replica))
    yield from _steps(program, loops)
    yield from _buckets(source, loops)
    yield from _alone(program)
    for call in program.calls("register_post_accumulate_grad_hook", "register_hook"):
        loop = next((one for one in loops if within(one, call)), None)
        given = program.text(loop.iter) if loop else ""
        checked = (
            "parameters(" not in given or "requires_grad" in f"{given}{loop and ast.unparse(loop)}"
        )
        if unknown and not checked and "requires_grad" not in around(call):
            yield "frozen hook", call
    for call in program.calls("named_parameters"):
        if "remove_duplicate=False" in ast.unparse(call):
            yield "tied weights", call
    dropped = [node.value for node in program.nodes if isinstance(node, ast.Expr)]
    waits = re.search(r"\bwait\(|wait_all|get_future", source)
    for node in program.nodes:
        words = node.keywords if isinstance(node, ast.Call) else ()
        started = any(one.arg == "async_op" and "True" in ast.unparse(one.value) for one in words)
        if started and (node in dropped or not waits):
            yield "no wait", node
    yield from _memory(program, sent)


def _divisions(program: "Program", sums: list[Any], replica: bool) -> Iterator[tuple[str, Any]]:
    """Yields gradients that are divided twice or not at all, and means of means."""
    losses = [program.text(one.func) for one in program.calls("backward")]
    scaled = [
        text for text in losses if re.search(DIVIDED, text) and not re.search(rf"{RANKS} \*", text)
    ]
    changes = [
        program.text(node) for node in program.nodes
        if isinstance(node, ast.AugAssign | ast.Call | ast.Assign) and "grad" in ast.unparse(node)
        and not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call))
    ]  # fmt: skip
    parts = [text for text in changes if re.search(DIVIDED, text)]
    averages = "ReduceOp.AVG" in program.source
    twice = "grad" in program.source and re.search(rf"/ \w+ / {RANKS}", program.source)
    if twice or (scaled and (replica or parts or averages)) or (parts and (replica or averages)):
        yield "divided twice", (program.calls("backward") or sums)[0]
    body = re.sub(r"#.*", "", program.source)
    if (
        sums
        and not replica
        and not averages
        and not re.search(r"/|div_?\(|mul_?\(|\* ?weight", body)
    ):
        yield "not divided", sums[0]
    counted = re.search(DIVIDED, program.source) or averages
    for call in program.calls("all_reduce") if counted else ():
        mean = ast.unparse(program.value(call.args[0])) if call.args else ""
        if call not in sums and re.search(r"/ (len\(|\w*count|\w*total|\w+\[)|\.mean\(", mean):
            yield "mean of means", call


def _steps(program: "Program", loops: list[ast.For]) -> Iterator[tuple[str, Any]]:
    """Yields what is forgotten in a loop over epochs, steps, micro-batches or buckets."""
    backward, source = program.calls("backward"), program.source
    updates = program.calls("step") or re.search(r"-= .*grad", source)
    zeros = re.search(r"zero_grad|\.grad = (None|torch\.zeros)|grad\.zero_|autograd\.grad", source)
    if updates and not zeros and any(within(one, *backward) for one in loops if backward):
        yield "no zero_grad", backward[0]
    for call in program.calls("DistributedSampler"):
        if "set_epoch" not in source and "shuffle=False" not in ast.unparse(call):
            yield "no set_epoch", call
    for node in (one for one in program.nodes if isinstance(one, ast.With)):
        text = " ".join(ast.unparse(one) for one in node.items)
        if "no_sync()" in text and " if " not in text and backward and within(node, *backward):
            yield "no_sync", node


def _buckets(source: str, loops: list[ast.For]) -> Iterator[tuple[str, Any]]:
    """Yields buckets that are left out, or left over behind a loop that sends full ones."""
    for loop in loops:
        if re.search(r"buckets\[(1:|:-1)", ast.unparse(loop.iter)):
            yield "bucket", loop
        for test in (one for one in loop.body if isinstance(one, ast.If)):
            text = "\n".join(map(ast.unparse, test.body))
            emptied = re.search(
                r"^(\w+)(?:\.clear\(\)|(?:, \w+)* = (?:\[\]|\(?\[\], ))", text, re.MULTILINE
            )
            if emptied and re.search(r"all_reduce\(|\bsend\w*\(|\bflush\w*\(", text):
                rest = source.splitlines()[loop.end_lineno or 0 :]
                used = re.search(rf"\b{emptied[1]}\b", "\n".join(rest))
                if not (used or re.search(r"last|len\(|-1|\bis \w", ast.unparse(test.test))):
                    yield "bucket", test


def _alone(program: "Program") -> Iterator[tuple[str, Any]]:
    """Yields where one rank calls what all must call."""
    tests = [one for one in program.nodes if isinstance(one, ast.If) and not one.orelse]
    for node in tests:
        test, body = ast.unparse(node.test), "\n".join(map(ast.unparse, node.body))
        saves = re.search(r"\b(dcp|checkpoint)\.(async_)?save\(", body)
        first, last = node.body[0].lineno, node.body[-1].end_lineno or 0
        if re.fullmatch(rf"{RANK}( != 0| > 0)?", test) and isinstance(node.body[-1], ast.Return):
            around = [one for one in program.functions.values() if within(one, node)]
            first, last = last, max([one.end_lineno or 0 for one in around], default=0)
        elif not re.fullmatch(rf"not {RANK}|{RANK} == 0", test):
            continue
        if saves or [one for one in program.calls(*COLLECTIVES) if first <= one.lineno <= last]:
            yield "rank 0 alone", node


def _memory(program: "Program", sent: list[str]) -> Iterator[tuple[str, Any]]:
    """Yields what a rank holds and need not hold."""
    if any("%" in text for text in sent):
        for call in program.calls("SGD", "Adam", "AdamW", "make_optimizer"):
            if not re.search(r"%|chunk|shard|split|\[rank", program.text(call)):
                yield "whole state", call
    for node in program.nodes:
        if isinstance(node, ast.Call) and re.search(
            r"reshard_after_forward=False", ast.unparse(node)
        ):
            yield "kept gathered", node
        kept = isinstance(node, ast.Assign) and re.match(r"ctx\.\w+ = .*gather", ast.unparse(node))
        saved = isinstance(node, ast.Call) and ast.unparse(node.func) == "ctx.save_for_backward"
        if kept or (saved and "gather" in program.text(node)):
            yield "kept gathered", node
