"""The shared eva trainer: turns a recipe, a profile and a seed into a chain of stages."""
