"""A run of N ranks, the same on this machine and under Slurm: its start, its output, its errors."""
