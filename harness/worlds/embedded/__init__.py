"""The embedded world: everything a run needs on a machine without network, key or GPU."""
