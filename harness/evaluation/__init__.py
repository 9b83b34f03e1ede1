"""Benchmarks and judges: turn verdicts, ratings and preferences into scores.

Scorers work on plain records, the same for the embedded world's judge and for real ones.
"""
