"""The report: what the store holds of a table, as cells, beside what the paper prints.

It reads and never runs a model. `cells` turns stored per-prompt scores into numbers, `report`
puts everything about a table together, and `terminal`, `markdown` and `json` write it down;
`publish` keeps it with the scores it was computed from. None of this imports torch, transformers,
TRL, MLflow, datasets or pandas.
"""
