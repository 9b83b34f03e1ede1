"""`python -m harness` is `harness`."""

from harness.cli.main import main

main()
