"""Serving: starts, shares and stops the local servers of a run (`servers`), by `engines`."""
