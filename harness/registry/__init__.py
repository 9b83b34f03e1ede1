"""Declarations: the paper's tables, their recipes and printed values, and the profiles.

Everything here is data read from YAML and validated on load. Nothing in this package runs a model,
and none of its modules imports torch, transformers, TRL, MLflow or pandas.
"""
