"""Estimates a plan's cost before anything is spent: GPU hours, dollars and disk, by stage.

Dollars are requests times price; GPU time is tokens over throughput, measured on the plan's own
finished stages or else from a short table (`speeds.yaml`). Token counts are assumed
(`assumptions.yaml`); each number has its source. Shared stages count once, done ones are free, and
unknown costs are reported as unknown.
"""
