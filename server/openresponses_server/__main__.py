"""The program `openresponses-bridge` under its documented name `python -m openresponses_server`."""

from openresponses_cli.__main__ import main as main

if __name__ == "__main__":
    main()
