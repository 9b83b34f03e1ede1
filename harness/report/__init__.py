"""Reports: a table's stored results as cells, next to the paper's values.

`cells` turns stored per-prompt scores into numbers, `build` assembles a table's report, `view`
formats it as text, `render` and `page` write it out, and `publish` saves it with the scores.
"""
