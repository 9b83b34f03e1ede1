"""Real models from the hub, creators and judges at endpoints, and published benchmarks."""
