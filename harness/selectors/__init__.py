"""Selectors choose the prompts for online training: eva and competing methods.

`selector` defines the interface, `stream` drives a selector step by step, `eva` is the paper's
method, and `screening` and `remembering` hold its competitors. Nothing here does file I/O, knows a
model, or can reach the oracle: a selector sees prompts, rewards and what its context provides.
"""
