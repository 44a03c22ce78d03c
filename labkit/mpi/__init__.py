"""A function in N processes of a real MPI on this machine, started by mpiexec."""
