"""Ranks under Slurm: as an engine of a cluster, as a batch script, and as a recorded session."""
