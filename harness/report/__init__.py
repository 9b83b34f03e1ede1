"""The report: what the store holds of a table, as cells, beside what the paper prints.

It reads and never runs a model. `cells` turns stored per-prompt scores into numbers, `build`
puts everything about a table together, `view` says it in words, and `render` and `page` write it
down; `publish` keeps it with the scores it was computed from. None of this imports torch,
transformers, TRL, MLflow, datasets or pandas.
"""
