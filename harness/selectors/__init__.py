"""Selectors choose the prompts for online training, by prompts, rewards and their context only."""
