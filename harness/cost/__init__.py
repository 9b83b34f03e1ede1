"""What a plan costs before anything is spent: GPU hours, dollars and disk, stage by stage.

Requests times their price, and tokens over tokens a second: those of the plan's own stages once
some are done, before that those of a short table (`speeds.yaml`). How many tokens there are is
assumed (`assumptions.yaml`); each number has its source beside it. Equal stages cost once and done
ones nothing; what is not known is said to be unknown.
"""
