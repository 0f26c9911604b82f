"""The program `openresponses-bridge`, also as `python -m server`.

It is installed with the library alone too, and then says what to install: what may be missing is imported in
`main` only.
"""

from __future__ import annotations

import sys

_OUR_OWN = {"bridge", "server"}
_USAGE = 2  # the exit code of every wrong use


def main() -> None:
    """Run the command line. A module that is not installed ends it with exit code 2 and a line on stderr."""
    try:
        from server.cli import main as commands

        commands()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if not name or name in _OUR_OWN:
            raise
        command = " ".join(["openresponses-bridge", *sys.argv[1:2]])
        print(
            f"{command} needs {name}, which is not installed: pip install 'openresponses-bridge[server]'",
            file=sys.stderr,
        )
        sys.exit(_USAGE)


if __name__ == "__main__":  # not in the worker processes, which load the main module too
    main()
