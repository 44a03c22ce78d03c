"""The same programs under a real MPI: a process per rank, started by mpiexec."""
