"""The eva method as pure functions: no files, no model library, randomness passed in."""
