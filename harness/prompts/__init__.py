"""Human prompts from outside the embedded world: their sources, pieces and repetitions."""
