"""Recognising that an input is too long for a model: every server words it in its own way, clients know one
code. With `truncation` "disabled" no input is shortened, so its overflow must be reported (specification).
"""

from __future__ import annotations

import re
from typing import Final

CODE: Final = "context_length_exceeded"
_STATUSES: Final = frozenset({400, 413, 422})
_CODES: Final = frozenset({"exceed_context_size_error", "context_window_exceeded"})
_WORDS: Final = re.compile(
    r"maximum (context|prompt) length"  # OpenAI, vLLM, DeepSeek, Mistral, OpenRouter, xAI
    r"|prompt is too long|exceeds? (the )?(context|available context)"  # Anthropic, llama.cpp
    r"|input token count .{0,200} exceeds"  # Gemini
    r"|context (window|length|size) (is |was )?(exceeded|overflow)"
    r"|reduce the length of the (messages|prompt|input)",  # Groq
    re.IGNORECASE,
)


def overflow_code(status: int, reported: str | None, message: str) -> str | None:
    """`context_length_exceeded` when a refusal means that, else None. `reported` is the code or type that
    came with it."""
    if status not in _STATUSES or reported == CODE:
        return None
    return CODE if reported in _CODES or _WORDS.search(message) else None
