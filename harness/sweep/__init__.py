"""Sweeps: a search over settings of recipes and profiles, with Optuna.

A *declaration* says what is searched, how it is measured and where it ends. A *trial* is a point
of the search space: it is planned like any row of a table, computed into the same store, and
measured on validation prompts that no benchmark holds. When the trials are done, the *winner* is
run on the benchmarks with fresh seeds, and only that is a result: the best of many measurements
is better than it deserves. Optuna is imported here and nowhere else.
"""
