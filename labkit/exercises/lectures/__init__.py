"""The questions of each lecture, by name, in `TASKS`."""
