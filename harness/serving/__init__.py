"""Serving: the harness starts, shares and stops the servers that a run needs on its own machine.

A run holds `Servers`; `hold` gives the addresses of some roles as long as a block lasts:

    with Servers(profile.serving, logs, find) as servers:
        with servers.hold("creator", "scorer") as at:
            ask(at["creator"].url, at["creator"].model)
        with servers.alone():
            train()

Which engine in which version serves the policy decides numbers, and so belongs to a stage's
identity (`engines.identity`); where it is installed and on which port it listens does not.
"""
