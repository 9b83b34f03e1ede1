"""Sweeps: hyperparameter search over recipes and profiles, with Optuna.

A *declaration* defines the search space, the objectives and the number of trials. A *trial* is a
point of the search space: it is planned like any table row, computed into the same store, and
measured on validation prompts that are in no benchmark. When the trials are done, the *winner* is
run on the benchmarks with fresh seeds, and only that is a result, because the best of many
measurements is biased upward. Optuna is imported only in this package.
"""
