"""Figures of the paper, drawn from our runs.

    store or published file -> data -> points -> report: words, drawing, JSON

The data of a figure are values of single prompts. Its numbers, with their intervals, are its points
(both in `scores` and `prompts`), and everything that is shown is made of points alone, but for the
dots of a scatter plot. What is published holds the data, so that the points can be computed again.
"""
