"""A batch script is read as sbatch reads it, and what it fails to ask for is said."""

import pytest

from labkit.exercises import check
from labkit.exercises.judges.batch_script import seconds_of
from labkit.kinds import LabError

GOOD = """#!/bin/bash
#SBATCH --partition=alpha
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=14
#SBATCH --mem=64G
#SBATCH --time=1:00:00

srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py
"""
PASSED_ON = "srun --cpus-per-task=$SLURM_CPUS_PER_TASK"
ANOTHER = """#!/bin/bash
#SBATCH -p alpha -N2 -n 2 -c 14 --exclusive
#SBATCH -t 60 --gpus-per-node=a100:1
#SBATCH --mem 64000   # in MB
module load Python
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun python train.py
"""


@pytest.mark.parametrize(
    "script",
    [
        GOOD,
        ANOTHER,
        GOOD.replace("--gres=gpu:1", "-G 2"),
        GOOD.replace("--gres=gpu:1", "--gres=nvme:3,gpu:a100:1"),
        GOOD.replace(PASSED_ON, "srun -c14 --label"),
        GOOD.replace(PASSED_ON, "srun --label \\\n  --cpus-per-task 14"),
        GOOD.replace(PASSED_ON, 'SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK}" srun'),
    ],
)
def test_several_ways_to_ask_for_the_same_are_right(script):
    assert check("16.header", script), str(check("16.header", script))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("#!/bin/bash\n", "", "its first line is #!/bin/bash"),
        ("#SBATCH --nodes=2", "# SBATCH --nodes=2", "is a comment for sbatch"),
        ("#SBATCH --nodes=2\n", "", "nodes: it asks for 1"),
        ("--gres=gpu:1", "--gres=gpu:4", "GPUs on each node: it asks for 4"),
        ("--time=1:00:00", "--time=1:00", "minutes: it asks for 1, and 60"),
        (PASSED_ON, f"{PASSED_ON} -n 1", "starts 1 of 2 ranks"),
        ("--mem=64G", "--mem-per-cpu=64G", "is for each core"),
        (PASSED_ON, "", "runs once, on the first node"),
        (PASSED_ON, "srun", "asks for one core for each rank"),
        ("train.py", "train.py &", "in the background"),
        ("#SBATCH --mem=64G", "module load x\n#SBATCH --mem=64G", "sbatch ignores it there"),
    ],
)
def test_each_mistake_is_named(before, after, told):
    assert before in GOOD
    assert told in str(check("16.header", GOOD.replace(before, after)))


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("30", 1800), ("2:30", 150), ("2:30:00", 9000), ("1-0", 86_400), ("1-2:30", 95_400)],
)
def test_times_are_read_as_slurm_reads_them(time, seconds):
    assert seconds_of(time) == seconds
    with pytest.raises(LabError, match="--time=soon"):
        seconds_of("soon")
