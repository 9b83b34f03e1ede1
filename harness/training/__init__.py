"""Training: TRL's trainers behind functions that take and return plain values."""
