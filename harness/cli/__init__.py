"""The command line: one small module for each group of verbs, `main` ties them together."""
