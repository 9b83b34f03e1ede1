"""Figures of the paper, drawn from our runs.

    store or published file -> data -> points -> text, drawing, JSON

The data of a figure are values of single prompts. Its numbers, with their intervals, are its
points, and everything that is shown is made of points alone, but for the dots of a scatter plot.
`kinds` says for each kind of figure how its data are read, how its points are computed, and how
they are drawn. What is published holds the data, so that the points can be computed again.
"""
