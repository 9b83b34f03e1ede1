"""The embedded world: everything a run needs on a machine without network, key or GPU.

A language of instructions over short lists, a policy and a reward model that read it, a creator
that rewrites it, three benchmarks written in it, and an oracle that only the judge may consult.
All of it is small, and all of it goes through the code that serves real models.
"""
