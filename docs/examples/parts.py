"""A captured stream as VS Code's language-model parts, in the terminal: `python parts.py < capture.sse`."""

import sys
from collections.abc import Iterable, Iterator

from openresponses_bridge import (
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    Part,
    PartDecoder,
    SSEDecoder,
    decode_event,
)
from openresponses_bridge.sse import is_done

DIM, CYAN, PLAIN = "\033[2m", "\033[36m", "\033[0m"


def parts_of(pieces: Iterable[bytes]) -> Iterator[Part]:
    """The parts of a stream that comes in pieces of any size."""
    frames, decoder = SSEDecoder(), PartDecoder()
    for data in pieces:
        for frame in frames.feed(data):
            if not is_done(frame):
                yield from decoder.feed(decode_event(frame.data))
    yield from decoder.close()


def shown(part: Part) -> str:
    """Text as it is, thinking dim, calls in colour with their whole input."""
    if isinstance(part, LanguageModelTextPart):
        return part.value
    if isinstance(part, LanguageModelThinkingPart):
        return f"{DIM}{''.join(part.value)}{PLAIN}"
    if isinstance(part, LanguageModelToolCallPart):
        return f"\n{CYAN}{part.name}({part.input}){PLAIN}\n"
    return ""


if __name__ == "__main__":
    for part in parts_of(sys.stdin.buffer):
        print(shown(part), end="", flush=True)
    print()
