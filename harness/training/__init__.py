"""Training: TRL trainers wrapped in functions that take and return plain values."""
