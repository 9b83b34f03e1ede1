"""Serving: starts, shares and stops the local servers of a run.

A run has one `Servers` object, whose `hold` serves the given roles within a block:

    with Servers(profile.serving, logs, find) as servers:
        with servers.hold("creator", "scorer") as at:
            ask(at["creator"].url, at["creator"].model)
        with servers.alone():
            train()

The policy's engine and version affect results, so they are part of a stage's identity
(`engines.identity`); the installation path and the port are not.
"""
