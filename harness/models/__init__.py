"""Models that are run, not trained: the policy that answers and the reward models that score."""
