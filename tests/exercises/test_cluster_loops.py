"""Programs for several processes, run by them: each fault is named.

What the weights, images and losses of a worker tell is what they tell in test_training_loops.
"""

import pytest

from labkit.exercises import tasks
from tests.exercises.cells import changed, refused
from tests.exercises.test_tasks import CLUSTER_LOOPS
from tests.strategies.conftest import warm

__all__ = ["warm"]  # here ranks need TensorFlow
pytestmark = pytest.mark.usefixtures("four")
WORKER, LEAD, RESTART = CLUSTER_LOOPS
DISTRIBUTED = "strategy.experimental_distribute_dataset(dataset.batch(global_batch))"
EACH_ALL = "strategy.distribute_datasets_from_function(lambda _: dataset.batch(global_batch // 2))"
PER_WORKER = "coordinator.create_per_worker_dataset(make_dataset)"
SCHEDULE = "        coordinator.schedule(step, args=(batches,))\n"
LOOP = "    for _ in range(steps):\n"
WRONG = [
    (WORKER, DISTRIBUTED, EACH_ALL, "the same 8 images"),
    (WORKER, "if strategy.cluster_resolver.task_id == 0", "if True", "Both workers wrote"),
    (WORKER, "    checkpoint.restore(",
     "    strategy.cluster_resolver.task_id or checkpoint.restore(", "Every worker must restore"),
    (WORKER, "model, optimizer = make_model()", "1 / 0",
     "On worker 0: It raised ZeroDivisionError"),
    (WORKER, "dataset.batch(global_batch)", "dataset.batch(global_batch, drop_remainder=True)",
     "the last batch has 11 images"),
    (LEAD, "    coordinator.join()\n", "", "coordinator.join()"),
    (LEAD, "updates.assign_add(1)", "updates.assign(updates + 1)", "race condition"),
    (LEAD, "updates.numpy()", "steps", "no variable on the parameter server"),
    (LEAD, f"{PER_WORKER})\n{LOOP}{SCHEDULE}", f"make_dataset())\n{LOOP}        step(batches)\n",
     "The chief made the steps by itself"),
    (LEAD, "strategy.run(replica_step, args=next(batches))", "replica_step(*next(batches))",
     "strategy.run"),
    (LEAD, SCHEDULE, f"{SCHEDULE}        coordinator.join()\n", "The chief waited 99"),
    (RESTART, ".skip(int(done.numpy()))", "", "the images begin anew"),
    (RESTART, ", optimizer=optimizer", "", "momentum begins anew"),
]  # fmt: skip


@pytest.mark.parametrize("task", CLUSTER_LOOPS)
def test_the_worked_solution_is_accepted(task):
    outcome = tasks()[task].check(changed(task, "", ""))
    assert outcome, str(outcome)


@pytest.mark.parametrize(("task", "old", "new", "words"), WRONG)
def test_a_solution_with_one_mistake_is_told_it(task, old, new, words):
    refused(task, changed(task, old, new, graph=task == LEAD), words)
