"""The declarations: tables of the paper, their recipes and printed values, and the profiles.

Everything here is data read from YAML and checked on the way in; nothing in this package runs a
model, and none of its modules imports torch, transformers, TRL, MLflow or pandas.
"""
