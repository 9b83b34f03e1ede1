"""A trained policy outside the store: a standard Hugging Face folder that says what it is."""
