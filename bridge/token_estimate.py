"""How many tokens a text or a request will be, without the model's tokenizer.

Tokenizers differ and are large; what a caller needs is whether a conversation nears its limit. Common
words are a token each, longer ones one per few letters, digits go by threes, each character of scripts
without spaces is about a token. Against recorded counts this stays within a third, and `UsageTracker`
corrects what is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from bridge.protocol.codec import encode
from bridge.protocol.content import InputFileContent, InputImageContent, InputImageParam, InputVideoContent
from bridge.protocol.input_items import InputItem
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse
from bridge.protocol.unknown import Unknown

TOKENS_PER_ITEM = 4
"""What a message or call costs beside its words: role, delimiters, ids."""
TOKENS_PER_IMAGE = {"low": 85, "auto": 765, "high": 1105, "original": 1105}
TOKENS_PER_FILE = 1500
_COMMON_WORD = 7
_LETTERS_PER_TOKEN = 4.5
_DIGITS_PER_TOKEN = 3
_SIGNS_PER_TOKEN = 1.6

_PIECES = re.compile(
    r"(?P<word>[^\W\d_\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\uffdf]+)"
    r"|(?P<number>\d+)"
    r"|(?P<sign>[!-/:-@\[-`{-~]+)"
    r"|(?P<line>\n\s*)"
    r"|(?P<wide>[^\x00-\x7f])"
)


_RULE = re.compile(r"(.)\1{2,}")


@lru_cache(maxsize=4096)
def _word_tokens(word: str) -> float:
    if len(word) <= _COMMON_WORD and word.isascii():
        return 1.0
    return max(1.0, len(word) / (_LETTERS_PER_TOKEN if word.isascii() else 2.5))


def text_tokens(text: str) -> int:
    """Estimated tokens of a text."""
    count = 0.0
    for match in _PIECES.finditer(text):
        kind, length = match.lastgroup, match.end() - match.start()
        if kind == "word":
            count += _word_tokens(match.group())
        elif kind == "number":
            count += -(-length // _DIGITS_PER_TOKEN)
        elif kind == "sign":
            # a rule of one sign over and over is a token or two, however long
            count += max(1.0, len(_RULE.sub(r"\1\1", match.group())) / _SIGNS_PER_TOKEN)
        else:
            count += 1.0
    return round(count)


def request_tokens(request: CreateResponse, history: Iterable[InputItem | Item] = ()) -> int:
    """Estimated input tokens of a request: instructions, tools, `history` (the items that
    `previous_response_id` stands for) and input."""
    count = text_tokens(request.instructions or "")
    if request.tools:
        count += text_tokens(encode(request.tools).decode())
    items = [*history, *(request.input if isinstance(request.input, list) else ())]
    count += sum(item_tokens(item) for item in items)
    if isinstance(request.input, str):
        count += TOKENS_PER_ITEM + text_tokens(request.input)
    return count


def item_tokens(item: InputItem | Item) -> int:
    """Estimated tokens of one item. Ids and states are not counted; opaque content by its size."""
    return TOKENS_PER_ITEM + _tokens(item)


_UNCOUNTED = frozenset({"type", "id", "status", "role", "call_id", "annotations", "logprobs", "phase"})


def _tokens(value: Any) -> int:
    if isinstance(value, str):
        return text_tokens(value)
    if isinstance(value, InputImageParam | InputImageContent):
        return TOKENS_PER_IMAGE.get(str(value.detail), TOKENS_PER_IMAGE["auto"])
    if isinstance(value, InputFileContent | InputVideoContent):
        return TOKENS_PER_FILE
    if isinstance(value, Unknown):
        return _tokens(value.raw)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return sum(
            len(each) // 4 if name == "encrypted_content" and isinstance(each, str) else _tokens(each)
            for name, each in value.items()
            if name not in _UNCOUNTED
        )
    if isinstance(value, list):
        return sum(_tokens(each) for each in value)
    return 1 if isinstance(value, int | float) else 0
