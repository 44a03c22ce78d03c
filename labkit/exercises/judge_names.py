"""How answers are judged: the names that the judge of a task as text may use.

>>> number(48, "GB")(48e9)
Traceback (most recent call last):
labkit.exercises.task.Wrong: You gave bytes; the question asks for GB.
"""

from functools import partial

from labkit.cluster import tf_config
from labkit.collectives.records import listed
from labkit.exercises.judges.answers import (
    beside,
    each,
    function,
    judged,
    number,
    numbers_in,
    plain,
    word,
)
from labkit.exercises.judges.batch_script import batch_script
from labkit.exercises.judges.cluster_loops import (
    cluster_config,
    coordinator_loop,
    on_each_rank,
    restarted_loop,
    worker_loop,
)
from labkit.exercises.judges.federated import rounds_over_links
from labkit.exercises.judges.large_models.cut_transformer import (
    cut_gradient,
    cut_loss,
    dropout_seeds,
    norm_cut,
    swiglu_cut,
    tied,
)
from labkit.exercises.judges.large_models.experts import (
    balance,
    capacity,
    expert_backward,
    expert_groups,
    expert_layer,
    routed,
)
from labkit.exercises.judges.large_models.long_sequences import (
    balanced_places,
    block_gradients,
    causal_blocks,
    merged,
    ring,
    ring_backward,
    softmax_blocks,
    ulysses,
)
from labkit.exercises.judges.model_parallel import (
    attention_heads,
    check_colors,
    column_parallel,
    gated_mlp,
    halo,
    halo_backward,
    hybrid_step,
    on_ranks,
    on_which_link,
    sequence_parallel,
    zero_1,
    zero_3,
)
from labkit.exercises.judges.over_links import all_reduce_over_links
from labkit.exercises.judges.program import (
    BLOCKS,
    more_bytes_than_a_ring,
    program,
    programs_in,
    slower_than_doubling,
)
from labkit.exercises.judges.pytorch.torch_hooks import torch_hook, torch_local_sgd
from labkit.exercises.judges.pytorch.torch_parallel import torch_layer, torch_schedule
from labkit.exercises.judges.pytorch.torch_resume import torch_resume
from labkit.exercises.judges.pytorch.torch_training import (
    torch_ddp,
    torch_fsdp,
    torch_metrics,
    torch_on_arrays,
    torch_sampler,
    torch_zero_1,
)
from labkit.exercises.judges.serial import adam, clip, momentum, scaled, total
from labkit.exercises.judges.server_loop import examine_server, two_servers
from labkit.exercises.judges.slow_link import accumulated
from labkit.exercises.judges.training_loops import (
    accumulation,
    accuracy,
    clipping,
    distributed_accuracy,
    fitting,
    input_pipeline,
    one_step,
    resuming,
    training_loop,
)
from labkit.exercises.task import letters
from labkit.kinds import bytes_text
