"""Figures of the paper, drawn from our runs.

    store or published file -> data -> points -> report: words -> drawing -> published

A figure's data are per-prompt values. Its numbers, with their intervals, are its points (`points`).
Everything shown is made of points, except the dots of a scatter plot.
Published figures include the data, so that their points can be recomputed.
"""
