"""Inference engines for the policy, behind one interface.

Every engine gets the same tokens, the same sampling settings and one seed per answer (`request`),
so request order and batching affect only rounding.
"""
