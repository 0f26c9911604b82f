"""Becomes the program that it is given, once the system has promised to end it with its parent.

Run by itself, as `python -I -S launcher.py PARENT PROGRAM ARGUMENT…`: what a forked process may do before it
runs another program is little, and this way it is nothing.
"""

import contextlib
import ctypes
import os
import signal
import sys

_SET_DEATH_SIGNAL = 1  # Linux, prctl(2)


def main() -> None:
    """Exit code 127 when the program can't be run, as shells have it."""
    parent, program, *arguments = sys.argv[1:]
    with contextlib.suppress(OSError, AttributeError):  # elsewhere the closed pipe has to do
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit(0)  # it ended before the promise was made
    try:
        os.execvp(program, [program, *arguments])
    except OSError as error:
        print(f"{program}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
