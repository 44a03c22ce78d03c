"""The tasks, in a file for each notebook; it is found by its name."""
