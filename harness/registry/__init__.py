"""Declarations: data read from YAML and validated on load, without heavy libraries."""
