"""Stands in for vLLM's entry points."""
