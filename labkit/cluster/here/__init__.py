"""Ranks on this machine: a warm fork server starts them, in a private network."""
