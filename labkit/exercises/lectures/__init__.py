"""The tasks of the lectures, in a file for each part of the course."""
