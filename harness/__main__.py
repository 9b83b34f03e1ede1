"""Makes `python -m harness` the same as `harness`."""

from harness.cli.main import main

main()
