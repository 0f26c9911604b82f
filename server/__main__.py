"""`python -m server` is `openresponses-bridge`."""

from server.cli import main

if __name__ == "__main__":  # not in the worker processes, which load the main module too
    main()
