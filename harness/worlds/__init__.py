"""What a run takes from outside the algorithm: an embedded world, real models, mock models."""
