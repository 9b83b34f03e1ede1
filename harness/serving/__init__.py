"""Serving: the harness starts, shares and stops the servers that a run needs on its own machine.

    engines    which engines there are, where they are installed, their command lines
    server     one server: started alone, awaited, and ended with all that it has started

Which engine in which version serves the policy decides numbers, and so belongs to a stage's
identity (`engines.identity`); where it is installed and on which port it listens does not.
"""
