"""`harness`: a reproduction harness for eva (Evolving Alignment via Asymmetric Self-Play)."""

__version__ = "0.1.0"
