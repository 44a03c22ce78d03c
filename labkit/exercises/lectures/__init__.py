"""The tasks: a file of text for each notebook, and what is judged in that lecture alone."""
