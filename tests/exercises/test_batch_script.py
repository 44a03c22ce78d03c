"""A batch script is read as sbatch reads it, and what it fails to ask for is said."""

import pytest

from labkit.exercises import check

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
        GOOD.replace("--mem=64G", "--mem=67108864K").replace("--nodes=2", "--nodes=2-2"),
        GOOD.replace("#SBATCH --mem", "  # of a node\n# SBATCH --mem=8G\n#SBATCH -J me --mem"),
        GOOD.replace(PASSED_ON, "srun -c14 --label"),
        GOOD.replace(PASSED_ON, "srun -c ${SLURM_CPUS_PER_TASK:-14} --mpi=pmix env"),
        GOOD.replace(PASSED_ON, "N=$((SLURM_CPUS_PER_TASK))\nsrun -c $N -n $SLURM_NTASKS"),
        GOOD.replace(PASSED_ON, "srun --label \\\n  --cpus-per-task 14"),
        GOOD.replace("python train.py", "bash -c 'python train.py'"),
        GOOD.replace("python train.py", "apptainer exec --nv a.sif python train.py"),
        GOOD.replace(PASSED_ON, 'SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK}" srun'),
    ],
)
def test_several_ways_to_ask_for_the_same_are_right(script):
    assert check("35.header", script), str(check("35.header", script))
