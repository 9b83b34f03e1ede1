"""Requests to models at OpenAI-compatible endpoints: judges, creators and served policies.

`access` finds the endpoint of a role's model; `client` sends requests concurrently, caches each
reply under its request's address and pays for it once; `budget` and `prices` track spending;
`connection` is the network layer.
"""
