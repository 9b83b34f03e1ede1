"""Benchmarks and judges: from verdicts, ratings and preferences to scores.

The scorers are pure functions on plain records, the same for the embedded world's judge and for
real judgments. Each returns a `harness.evaluation.scores.BenchmarkScore`.
"""
