"""A batch script is read as sbatch reads it, and what it fails to ask for is said."""

import pytest

from labkit.exercises import check
from labkit.exercises.batch_header import options_of, seconds_of
from labkit.kinds import LabError

GOOD = """#!/bin/bash
#SBATCH --partition=alpha
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=14
#SBATCH --mem=64G
#SBATCH --time=1:00:00

srun python train.py
"""
ANOTHER = """#!/bin/bash
#SBATCH -p alpha -N 2 -n 2 -c 14
#SBATCH -t 60 --gpus-per-node=1
#SBATCH --mem 64000   # as on the seeds' cluster
module load Python
srun python train.py
"""


@pytest.mark.parametrize("script", [GOOD, ANOTHER])
def test_two_ways_to_ask_for_the_same_are_both_right(script):
    assert check("10.header", script), str(check("10.header", script))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("#!/bin/bash\n", "", "its first line is #!/bin/bash"),
        ("#SBATCH --nodes=2", "# SBATCH --nodes=2", "is a comment for sbatch"),
        ("#SBATCH --nodes=2\n", "", "It asks for 1 nodes; 2 are wanted."),
        ("--ntasks-per-node=1", "--ntasks-per-node=2", "4 ranks would be started; 2 are wanted"),
        ("--gres=gpu:1", "--gres=gpu:4", "Each node gets 4 GPUs"),
        ("--gres=gpu:1", "--gres=tpu:1", "asks for no GPU"),
        ("--cpus-per-task=14", "--cpus-per-task=1", "Each rank gets 1 cores"),
        ("--mem=64G", "--mem=64", "Each node gets 0.0625 GB"),
        ("#SBATCH --mem=64G\n", "", "It says nothing of memory."),
        ("--time=1:00:00", "--time=1:00", "--time=1:00 is 60.0 s; 1 h 0 min are wanted"),
        ("#SBATCH --time=1:00:00\n", "", "Without --time"),
        ("--partition=alpha", "--partition=beta", "'alpha' is wanted"),
        ("--partition=alpha", "--partitoin=alpha", "no option 'partitoin'"),
        ("srun python", "python", "runs once, on the first node"),
        ("srun python", "echo srun; python", "runs once, on the first node"),
        ("srun python", "mpirun python", "Slurm's own word is srun"),
        ("srun python", "srun -n 1 python", "starts 1 of 2 ranks"),
        ("--nodes=2", "--nodes='2", "is not closed"),
        ("srun python train.py\n", "", "starts nothing on them"),
        ("#SBATCH --mem=64G", "module load x\n#SBATCH --mem=64G", "sbatch ignores it there"),
    ],
)
def test_each_mistake_is_named(before, after, told):
    assert before in GOOD
    assert told in str(check("10.header", GOOD.replace(before, after)))


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("30", 1800), ("2:30", 150), ("2:30:00", 9000), ("1-0", 86_400), ("1-2:30", 95_400)],
)
def test_times_are_read_as_slurm_reads_them(time, seconds):
    assert seconds_of(time) == seconds


def test_what_is_no_time_is_named():
    with pytest.raises(LabError, match="--time=soon is no time"):
        seconds_of("soon")


def test_options_end_with_the_first_command():
    assert options_of("#!/bin/sh\n# words\n\n#SBATCH -N2\nls\n#SBATCH -n 4") == {"nodes": "2"}
