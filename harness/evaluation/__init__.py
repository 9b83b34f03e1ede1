"""Benchmarks and judges: from verdicts, ratings and preferences to scores.

Scorers are functions on plain records, the same for the embedded world's judge and for real ones.
"""
