"""Reports: a table's stored results as cells, next to the paper's values.

Read-only: nothing here runs a model. `cells` turns stored per-prompt scores into numbers, `build`
assembles a table's report, `view` formats it as text, `render` and `page` write it out, and
`publish` saves it with the scores it was computed from. None of this imports torch, transformers,
TRL, MLflow, datasets or pandas.
"""
