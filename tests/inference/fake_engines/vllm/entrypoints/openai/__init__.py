"""Stands in for vLLM's server."""
