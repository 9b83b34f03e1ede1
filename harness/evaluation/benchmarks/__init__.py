"""The benchmarks of the paper, one file each: data, judge's prompts, reading of replies, scores.

`alpaca_package` holds what AlpacaEval takes from the package of that name.
"""
