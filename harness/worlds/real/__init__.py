"""Real models: those of the hub, creators and judges behind endpoints, published benchmarks."""
