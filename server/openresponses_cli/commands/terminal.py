"""Standard output and error as commands write to them: any character in any encoding, colours if they are
allowed, and a reader that may leave."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Final, Literal, TextIO, TypedDict

from openresponses_bridge.text import allows_colours

SPELLINGS: Final = {
    "→": "->",
    "←": "<-",
    "⇒": "=>",
    "✓": "+",
    "✗": "x",
    "○": "o",
    "■": "#",
    "▶": ">",
    "▸": ">",
    "❯": ">",
    "↻": "@",
    "↪": ">",
    "…": "...",
    "·": "-",
    "🔧": "*",
}
"""The characters beyond ASCII that commands print, and their replacements if the encoding lacks them."""
_HANDLER: Final = "openresponses_bridge.spelled"


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """Replace our own characters, and escape others as in JSON: an error handler of codecs."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(SPELLINGS.get(sign) or _escaped(sign) for sign in lacking), error.end


def _escaped(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


codecs.register_error(_HANDLER, _spelled)


class PreparedStream(io.TextIOWrapper):
    """A text stream of the process that continues without its reader: later text is dropped or, with `ends`,
    raises BrokenPipeError."""

    ends = False

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        try:
            return super().write(text)
        except BrokenPipeError:
            if self.ends:
                raise
            drop_output(self)
            return len(text)

    def flush(self) -> None:
        """Send what was written, or drop it."""
        try:
            super().flush()
        except BrokenPipeError:
            if self.ends:
                raise
            drop_output(self)


class ConsoleOptions(TypedDict):
    """Arguments of rich's consoles."""

    stderr: bool
    highlight: bool
    color_system: Literal["auto"] | None


def is_coloured(stream: TextIO) -> bool:
    """Return True if what is written to this stream may have colours."""
    return allows_colours(os.environ, is_terminal=stream.isatty())


def console_options(*, stderr: bool = False) -> ConsoleOptions:
    """Return the arguments for each console of rich, which has colours if they are allowed."""
    may_be = is_coloured(sys.stderr if stderr else sys.stdout)
    return {"stderr": stderr, "highlight": False, "color_system": "auto" if may_be else None}


def end_with_reader() -> None:
    """Let this command end when the reader of its output leaves, since its work costs money."""
    if isinstance(sys.stdout, PreparedStream):
        sys.stdout.ends = True


def drop_output(stream: io.TextIOWrapper | None = None) -> None:
    """Drop further text for this stream, by default standard output, since its reader has left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, (stream or sys.stdout).fileno())
    os.close(nowhere)


def drop_unwritten() -> None:
    """Send what was written to standard output, or drop it if that is not possible: the interpreter would try
    again at its end, and end with a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()


def prepare_output() -> None:
    """Replace the process's standard output and error with streams that print every character and outlive
    their reader. Streams that were closed before the start discard everything."""
    sys.stdin = sys.stdin or _nowhere("r")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or _nowhere("w")
        if isinstance(stream, io.TextIOWrapper):
            encoding, by_line, at_once = stream.encoding, stream.line_buffering, stream.write_through
            setattr(sys, name, PreparedStream(stream.detach(), encoding, _HANDLER, None, by_line, at_once))


def _nowhere(mode: str) -> io.TextIOWrapper:
    # never closed, like the interpreter's own streams: otherwise it would warn of them at its end
    file = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
    return io.TextIOWrapper(open(file, f"{mode}b", closefd=False), "utf-8")
