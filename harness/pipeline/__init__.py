"""The shared eva trainer: a recipe, a profile and a seed become a chain of stages."""
