"""The embedded world: everything a run needs without a network, an API key or a GPU."""
