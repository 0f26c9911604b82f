"""How many tokens a text or a request will be, without the model's tokenizer.

Tokenizers differ and are large; what a caller needs is whether a conversation nears its limit. How many
tokens a text is follows from a few sizes: its words and their letters, digits, signs, lines, characters of
scripts without spaces. `WEIGHTS` is what each of them costs on average of five vocabularies in use;
`bridge.token_counter` corrects them for a model by what its upstream reports.

Sizes are taken from bytes with operations that run in C, about ten times as quick as looking at each word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import Any, Final, NamedTuple

import msgspec

from bridge.protocol.codec import encode
from bridge.protocol.content import (
    InputFileContent,
    InputImageContent,
    InputImageParam,
    InputVideoContent,
    OutputTextContent,
)
from bridge.protocol.input_items import InputItem
from bridge.protocol.items import Item, Message
from bridge.protocol.request import CreateResponse
from bridge.protocol.unknown import Unknown

TOKENS_PER_ITEM: Final = 4
"""What a message or call costs beside its words: role, delimiters, ids."""
TOKENS_PER_IMAGE: Final = {"low": 85, "auto": 765, "high": 1105, "original": 1105}
TOKENS_PER_FILE: Final = 1500
_SLICES: Final = 16  # of a long text of which a sample is taken

Sizes = tuple[float, ...]
"""In the order of `WEIGHTS`."""

WEIGHTS: Final[dict[str, float]] = {
    "words": 0.754,
    "letters": 0.096,
    "digits": 0.381,
    "signs": 0.476,
    "lines": 1.122,
    "ideographs": 0.678,
    "syllables": 0.737,  # kana, Hangul, full-width signs; an emoji counts as two
    "others": 0.407,  # letters of other scripts, accented ones
    "items": float(TOKENS_PER_ITEM),
    "requests": 0.0,  # what a server adds to each
    "requests_with_tools": 0.0,  # and to those that declare tools
}
"""The tokens of one of each."""
PRIOR: Final = tuple(WEIGHTS.values())
_NO_TEXT: Final = (0.0,) * len(PRIOR)
_BEYOND_TEXT: Final = 3  # the sizes at the end that no text has


class Measured(NamedTuple):
    """`sizes`, and the tokens that do not depend on a tokenizer: images, files, what is sealed."""

    sizes: Sizes
    fixed: int

    def tokens(self, weights: Sequence[float] = PRIOR) -> int:
        """With these weights."""
        cost: float = sum(map(mul, self.sizes, weights))
        return round(cost) + self.fixed


def text_tokens(text: str) -> int:
    """Estimated tokens of a text."""
    return Measured(text_sizes(text), 0).tokens()


def request_tokens(request: CreateResponse, history: Iterable[InputItem | Item] = ()) -> int:
    """Estimated input tokens of a request: instructions, tools, `history` (the items that
    `previous_response_id` stands for) and input."""
    return measured_request(request, history).tokens()


def item_tokens(item: InputItem | Item) -> int:
    """Estimated tokens of one item. Ids and states are not counted; opaque content by its size."""
    return measured_items([item]).tokens()


def text_sizes(text: str) -> Sizes:
    """The sizes of a text."""
    foreign = not text.isascii()
    kinds = text.encode("utf-8", "surrogatepass").translate(_KIND, _CONTINUATION)
    count = kinds.count
    upper = count(b"A")
    return (
        # a capital within a word begins another one: camelCase
        float(len(kinds.translate(_LETTERS).split()) + count(b"aA")),
        float(count(b"a") + upper),
        float(count(b"0")),
        float(count(b".") - 2 * count(b"....")),  # a row of signs is a few tokens
        float(count(b"\n") - count(b"\n\n")),
        float(count(b"i")) if foreign else 0.0,
        float(count(b"s") + 2 * count(b"e")) if foreign else 0.0,
        float(count(b"o")) if foreign else 0.0,
        0.0,
        0.0,
        0.0,
    )


def item_texts(items: Iterable[InputItem | Item]) -> tuple[list[str], int]:
    """The texts in items of a conversation that are counted, and the tokens of what is not text."""
    texts: list[str] = []
    return texts, sum(_gather(item, texts) for item in items)


def request_texts(
    request: CreateResponse, history: Iterable[InputItem | Item] = ()
) -> tuple[list[str], int, int]:
    """The same of a whole request: its texts, how many items it has, the tokens of what is not text."""
    items = [*history, *(request.input if isinstance(request.input, list) else ())]
    texts, fixed = item_texts(items)
    texts.append(request.instructions or "")
    if request.tools:
        texts.append(encode(request.tools).decode())
    if isinstance(request.input, str):
        texts.append(request.input)
    return texts, len(items) + isinstance(request.input, str), fixed


def measured_items(items: Sequence[InputItem | Item], *, most: int | None = None) -> Measured:
    """Items of a conversation. `most`: characters that are looked at; of a longer text a sample is."""
    texts, fixed = item_texts(items)
    return _measured(texts, len(items), fixed, most)


def measured_request(
    request: CreateResponse, history: Iterable[InputItem | Item] = (), *, most: int | None = None
) -> Measured:
    """A whole request, as `request_tokens` counts it."""
    texts, items, fixed = request_texts(request, history)
    sizes, fixed = _measured(texts, items, fixed, most)
    return Measured((*sizes[:-2], 1.0, 1.0 if request.tools else 0.0), fixed)


def _measured(texts: list[str], items: int, fixed: int, most: int | None) -> Measured:
    sizes = text_sizes_of(texts, most)
    return Measured((*sizes[:-_BEYOND_TEXT], float(items), 0.0, 0.0), fixed)


def text_sizes_of(texts: Iterable[str], most: int | None = None) -> Sizes:
    """The sizes of several texts together."""
    text = " ".join(texts)
    if most is None or len(text) <= most:
        return text_sizes(text)
    each, step = most // _SLICES, len(text) // _SLICES
    sample = " ".join(text[start : start + each] for start in range(0, step * _SLICES, step))
    scale = len(text) / max(1, each * _SLICES)
    return tuple(size * scale for size in text_sizes(sample))


_UNCOUNTED: Final = frozenset({"type", "id", "status", "role", "call_id", "annotations", "logprobs", "phase"})


def _gather(value: Any, texts: list[str]) -> int:
    """Put the texts in it into `texts`; the tokens of what is not text."""
    if type(value) is OutputTextContent:  # what most outputs are made of, and nothing else of it counts
        texts.append(value.text)
        return 0
    if type(value) is Message:
        value = value.content
    if isinstance(value, str):
        texts.append(value)
        return 0
    if isinstance(value, InputImageParam | InputImageContent):
        return TOKENS_PER_IMAGE.get(str(value.detail), TOKENS_PER_IMAGE["auto"])
    if isinstance(value, InputFileContent | InputVideoContent):
        return TOKENS_PER_FILE
    if isinstance(value, Unknown):
        value = value.raw
    elif isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return sum(
            len(each) // 4 if name == "encrypted_content" and isinstance(each, str) else _gather(each, texts)
            for name, each in value.items()
            if name not in _UNCOUNTED
        )
    if isinstance(value, list):
        return sum(_gather(each, texts) for each in value)
    return 1 if isinstance(value, int | float) else 0


def _kind(byte: int) -> str:
    """What a byte of UTF-8 begins. The bytes after the first of a character are left out before."""
    if byte < 0x80:
        sign = chr(byte)
        if sign.isalnum():
            return "0" if sign.isdigit() else "a" if sign.islower() else "A"
        return "\n" if sign in "\r\n" else " " if byte <= 0x20 else "."
    if byte >= 0xF0:
        return "e"
    return "o" if byte < 0xE3 else "i" if 0xE4 <= byte <= 0xE9 else "s"


_KIND: Final = "".join(map(_kind, range(256))).encode()
_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_LETTERS: Final = bytes(byte if byte in b"aA" else 0x20 for byte in range(256))
