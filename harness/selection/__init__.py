"""Experiments (tables or a figure, rows, seeds, a profile): planned, run and reported."""
