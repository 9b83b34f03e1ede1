"""Asking a model over an OpenAI-compatible endpoint: judges, creators and served policies.

`access` says where a role's model is asked; `client` asks many requests at once, keeps each reply
under its request's address and pays it once; `budget` and `prices` count what is spent;
`connection` is the network.
"""
