"""Asking a judge, or a model, over an OpenAI-compatible endpoint.

A request is a value with an address (`request`), a reply is kept under that address (`cache`), what
is spent is counted and held under a budget (`prices`, `ledger`), and the network is one function
that may fail (`endpoint`). `client` puts them together: many requests at once, each paid once.
"""
