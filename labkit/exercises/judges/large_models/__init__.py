"""Judges of programs that divide a large model, piece by piece."""
