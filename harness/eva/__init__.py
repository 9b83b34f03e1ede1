"""The eva method as pure functions: informativeness, selection, evolving, pairs, and mixing.

Nothing here reads or writes files or imports a model library: functions map arrays and texts to
arrays and texts, with randomness passed in as a generator.
"""
