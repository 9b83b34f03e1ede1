"""What a run takes from outside the algorithm; see `harness.worlds.protocol`."""
