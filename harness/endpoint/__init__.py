"""Asking a model over an OpenAI-compatible endpoint: judges, creators and served policies.

A request is a value with an address (`request`), a reply is kept under that address and paid once,
many at once (`client`), what is spent is counted and held under a budget (`prices`, `budget`), and
the network is one class that may fail (`connection`), on a connection for each request that is
bounded in time and size (`exchange`).
"""
