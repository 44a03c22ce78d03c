"""The course kit: what a lecturer needs around the lectures. No lecture imports it."""
