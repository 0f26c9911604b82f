"""The program `openresponses-bridge`, also as `python -m openresponses_server`.

The program is also installed with the library alone, and then says what else to install; so modules that may
be missing are imported only in `main`.
"""

from __future__ import annotations

import os
import sys

_OUR_OWN = {"openresponses_agent", "openresponses_bridge", "openresponses_cli", "openresponses_server"}
_USAGE = 2  # the exit code for wrong usage


def main() -> None:
    """Run the command line. A module that is not installed ends it with exit code 2 and a line on stderr."""
    if not sys.flags.safe_path and os.path.isdir(sys.path[0] or os.curdir):
        del sys.path[0]  # the working directory with `python -m`, the script's folder otherwise
    try:
        from openresponses_cli.commands.cli import main as commands
        from openresponses_cli.commands.terminal import prepare_output

        prepare_output()
        commands()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if not name or name in _OUR_OWN:
            raise
        command = " ".join(["openresponses-bridge", *sys.argv[1:2]])
        print(
            f"{command} needs {name}, which is not installed: pip install openresponses-server",
            file=sys.stderr,
        )
        sys.exit(_USAGE)


if __name__ == "__main__":
    main()
