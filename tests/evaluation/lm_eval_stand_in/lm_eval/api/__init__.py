"""What the project imports of it."""
