"""Inference: the policy that generates answers and the reward models that score them."""
