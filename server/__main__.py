"""`python -m server` is `openresponses-bridge`."""

from server.cli import main

main()
