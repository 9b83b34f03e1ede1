"""Figures of the paper, drawn from our runs.

store or published file -> data -> points -> report: words -> drawing -> published
"""
