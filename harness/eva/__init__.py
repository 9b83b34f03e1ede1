"""The method: informativeness, selection, evolving, pairs and mixing, as pure functions.

Nothing here reads or writes files or imports a model library: every function maps arrays and
texts to arrays and texts, with randomness passed in as a generator.
"""
