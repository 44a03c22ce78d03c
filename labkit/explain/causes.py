"""The causes by name: what each is called, the smallest change, the lecture that explains it."""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """What a cause is called, and what to do."""

    says: str
    change: str
    lecture: str


CAUSES = {
    "input": Cause(
        "training waits for its input", "read in parallel, read less, or keep what was read", "37"
    ),
    "few_workers": Cause(
        "too few loader workers: the training process reads its own input",
        "DataLoader(…, num_workers={workers}, persistent_workers=True)", "37",
    ),
    "many_workers": Cause(
        "the loader's workers cost more than they bring", "DataLoader(…, num_workers=0)", "37"
    ),
    "workers_start": Cause(
        "the loader's workers start again in every epoch",
        "DataLoader(…, persistent_workers=True)", "37",
    ),
    "serial_map": Cause(
        "the input pipeline maps one element at a time, without prefetching",
        "map(…, num_parallel_calls=tf.data.AUTOTUNE) and prefetch(tf.data.AUTOTUNE)", "37",
    ),
    "python_input": Cause(
        "the input pipeline calls Python, one element at a time, under the GIL ({what})",
        "write {what} with the framework's operations, or on whole arrays", "38",
    ),
    "python_loop_input": Cause(
        "a Python loop prepares each example ({what})",
        "replace the loop by operations on whole arrays; more workers only spread it", "38",
    ),
    "text_format": Cause(
        "the storage format: text is parsed for every example ({what})",
        "convert the data once to a binary format (npy, TFRecord, Arrow)", "37",
    ),
    "rank_0_reads": Cause(
        "rank 0 reads for all ranks, and the others wait for it",
        "let every rank read its own part", "37",
    ),
    "eager": Cause(
        "the training step runs eagerly, one operation at a time (it is not compiled)",
        "@tf.function on the step; no run_eagerly", "16",
    ),
    "retracing": Cause(
        "the step is traced again and again by tf.function (retracing, for new shapes or numbers)",
        "tf.function(reduce_retracing=True), an input_signature, tensors instead of numbers", "38",
    ),
    "recompiling": Cause(
        "torch.compile compiles again for new shapes",
        "torch.compile(…, dynamic=True), or batches of one shape", "51",
    ),
    "few_threads": Cause(
        "too few threads: cores stay idle ({what})", "use {threads} threads in each process", "51"
    ),
    "many_threads": Cause(
        "more threads than cores: they take each other's cores, thread oversubscription ({what})",
        "use {threads} threads in each process (OMP_NUM_THREADS, set_num_threads)", "51",
    ),
    "communication": Cause(
        "communication between the ranks",
        "send fewer and larger messages, overlap them with backward, or send less often", "52",
    ),
    "micro_steps": Cause(
        "gradients are reduced at every micro-step of an accumulation",
        "reduce at the last micro-step only: model.no_sync() around the others", "51",
    ),
    "no_sync": Cause(
        "no_sync() has no effect, so that gradients are reduced at every micro-step: "
        "the forward pass is outside of it",
        "put forward and backward into model.no_sync()", "51",
    ),
    "many_collectives": Cause(
        "many small collectives in each step ({what})",
        "put the gradients into one flat buffer, and reduce that", "50",
    ),
    "find_unused": Cause(
        "find_unused_parameters=True searches for unused parameters that there are not",
        "DDP(…) without find_unused_parameters", "51",
    ),
    "buckets": Cause(
        "the gradients are one unit, so that communication cannot overlap with backward ({what})",
        "leave bucket_cap_mb at its default", "50",
    ),
    "sparse": Cause(
        "sparse gradients are gathered from all ranks (all-gather) instead of reduced",
        "Embedding(…, sparse=False)", "38",
    ),
    "uneven": Cause(
        "uneven work: at each step the ranks wait for the one with the longest batch",
        "give the ranks batches of equal length at each step (sort, then deal out in groups)", "38",
    ),
    "float64": Cause(
        "arithmetic in float64", "use float32 for data and parameters", "38"
    ),
    "frozen": Cause(
        "gradients are computed for weights that no optimizer changes ({what})",
        "module.requires_grad_(False), and torch.no_grad() around a part that is frozen from the "
        "input on", "38",
    ),
    "rows": Cause(
        "the gradient of an embedding has all rows, of which a batch uses few ({what})",
        "Embedding(…, sparse=True)", "38",
    ),
    "small_batch": Cause(
        "too little work in a step for each device: its fixed costs dominate",
        "a larger batch for each device", "13",
    ),
    "checkpoints": Cause(
        "checkpoints are saved too often, and training waits for them",
        "save less often", "34",
    ),
    "background_saving": Cause(
        "a thread that saves checkpoints takes the cores (or the GIL) from training",
        "save less often, or in another process", "38",
    ),
    "evaluation": Cause("evaluation too often", "evaluate less often, or on a part", "38"),
    "predict": Cause(
        "model.predict for a few examples at a time: it makes a dataset and a loop for each call",
        "model.predict_on_batch(x), or model(x, training=False)", "38",
    ),
    "logging": Cause(
        "logging in the training loop makes each step wait",
        "log every 100th step, keep the file open, and write only what is read", "38",
    ),
    "collection": Cause(
        "garbage collection stops the step",
        "gc.freeze() after the start, or collect at the same step on all ranks", "38",
    ),
    "synchronisation": Cause(
        "values are read one at a time in the loop (.item(), .numpy()), and each read waits",
        "keep the values on the device, and read them once for many steps", "51",
    ),
    "python": Cause(
        "Python code of your own in the training loop ({what})",
        "make it cheaper (operations on whole arrays), or run it less often", "38",
    ),
}  # fmt: skip

OF_TENSORFLOW = {"serial_map", "python_input", "eager", "retracing", "predict"}
OF_RANKS = {
    "rank_0_reads", "communication", "micro_steps", "no_sync", "many_collectives", "find_unused",
    "buckets", "sparse", "uneven",
}  # fmt: skip
OF_TORCH = {
    *OF_RANKS, "few_workers", "many_workers", "workers_start", "recompiling", "frozen", "rows",
}  # fmt: skip

PARTS = {  # of a step, in the order in which they are drawn
    "input": "waiting for input", "workers": "starting workers", "copy": "copies to the device",
    "forward": "forward", "backward": "backward", "optimizer": "optimizer",
    "graph": "compiled step", "trace": "tracing", "comm": "collectives and waiting for ranks",
    "sync": "reading values", "eval": "evaluation", "save": "checkpoints", "log": "logging",
    "gc": "garbage collection", "rest": "Python and everything else",
}  # fmt: skip
