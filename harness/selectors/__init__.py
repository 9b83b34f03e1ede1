"""Selectors: what chooses the prompts of an online training, eva and its peers.

`selector` has the interface, `stream` what asks a selector step by step, `eva` the paper's method,
`screening` and `remembering` its peers. Nothing here reads or writes files, knows a model, or can
reach the oracle: a selector sees prompts, rewards and what its context offers.
"""
