"""The command line: one module per group of verbs, tied together by `main`."""
