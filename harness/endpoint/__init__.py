"""Asking a model over an OpenAI-compatible endpoint: judges, creators and served policies.

A request is a value with an address (`request`), a reply is kept under that address and paid once,
many at once (`client`), what is spent is counted and held under a budget (`prices`, `budget`), and
the network is one class that may fail (`connection`), bounded in time and size (`bounds`).
"""
