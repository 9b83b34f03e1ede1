"""Benchmarks and judges: turn verdicts, ratings and preferences into scores."""
