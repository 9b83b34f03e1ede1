"""What a profile needs of a machine, and whether this one has it."""
