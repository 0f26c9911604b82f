"""Estimates how many tokens a text or a request has, without the model's tokenizer.

Tokenizers differ and are large; callers only need to know whether a conversation nears its limit. The
estimate follows from a few sizes of a text: words and their letters, digits, signs, lines, characters of
scripts without spaces. `WEIGHTS` is the average cost of each in five vocabularies; `TokenEstimator` corrects
the sum for a model by what its upstream reports.

Sizes are measured with operations on bytes that run in C, about ten times as fast as a loop over words.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.models.identity import model_identity
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import (
    InputFileContent,
    InputImageContent,
    InputImageParam,
    InputVideoContent,
    OutputTextContent,
)
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.items import Item, Message
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.tools import FunctionToolParam, ToolParam
from openresponses_bridge.protocol.unknown import Unknown

__all__ = [
    "ContentCache",
    "Cost",
    "TokenCounter",
    "TokenEstimator",
    "cost_tokens",
    "measured_items",
    "measured_request",
    "request_tokens",
]

TOKENS_PER_ITEM: Final = 4
"""The tokens of a message or call in addition to its text: role, delimiters, ids."""
TOKENS_PER_IMAGE: Final = {"low": 85, "auto": 765, "high": 1105, "original": 1105}
TOKENS_PER_FILE: Final = 1500
_SLICES: Final = 16  # samples of a long text

WEIGHTS: Final[dict[str, float]] = {
    "words": 0.754,
    "letters": 0.096,
    "digits": 0.381,
    "signs": 0.476,
    "lines": 1.122,
    "ideographs": 0.678,
    "syllables": 0.737,  # kana, Hangul, full-width signs; an emoji counts as two
    "others": 0.407,  # letters of other scripts, accented ones
}
"""The tokens of one unit of each kind. The first five are of ASCII."""
_WORDS, _LETTERS, _DIGITS, _SIGNS, _LINES, _IDEOGRAPHS, _SYLLABLES, _OTHERS = WEIGHTS.values()
_LONGEST_WORD: Final = 60  # letters and digits; a longer word is base64, a digest or a key
_ENCODED: Final = 0.05  # the part of a text in such words from which its count says little about other texts


class Cost(NamedTuple):
    """Estimated tokens of a text, of its ASCII and of other scripts, between which tokenizers differ most."""

    ascii: float
    other: float


class Factors(NamedTuple):
    """The factors of the two numbers of `Cost` for one tokenizer."""

    ascii: float = 1.0
    other: float = 1.0


UNCORRECTED: Final = Factors()


class Measured(NamedTuple):
    """The measurement of a request: the cost of its texts and their framing (which counts as ASCII), and
    tokens that do not depend on a tokenizer: images, files, sealed content. `encoded` is True if it has so
    much base64 or the like that its count must not correct other estimates."""

    cost: Cost
    fixed: int = 0
    encoded: bool = False

    def tokens(self, factors: Factors = UNCORRECTED) -> int:
        """Return the number of tokens by these factors."""
        return round(self.cost.ascii * factors.ascii + self.cost.other * factors.other) + self.fixed


def cost_tokens(cost: Cost, text: str, factors: Factors = UNCORRECTED) -> int:
    """Return the tokens of a text whose cost is known."""
    return max(Measured(cost).tokens(factors), 1 if text else 0)


def request_tokens(request: CreateResponse, history: Iterable[InputItem | Item] = ()) -> int:
    """Estimate the input tokens of a request: instructions, tools, `history` (the items that
    `previous_response_id` stands for) and input."""
    return measured_request(request, history).tokens()


def text_cost(text: str) -> Cost:
    """Return the cost of a text."""
    kinds = text.encode("utf-8", "surrogatepass").translate(_KIND, _CONTINUATION)
    count = kinds.count
    upper = count(b"A")
    plain = (
        # a capital within a word begins another one: camelCase
        _WORDS * (len(kinds.translate(_LETTERS_ONLY).split()) + count(b"aA"))
        + _LETTERS * (count(b"a") + upper)
        + _DIGITS * count(b"0")
        + _SIGNS * (count(b".") - 2 * count(b"...."))  # a row of signs is a few tokens
        + _LINES * (count(b"\n") - count(b"\n\n"))
    )
    if text.isascii():
        return Cost(plain, 0.0)
    other = _IDEOGRAPHS * count(b"i") + _SYLLABLES * (count(b"s") + 2 * count(b"e")) + _OTHERS * count(b"o")
    return Cost(plain, other)


def _is_encoded(text: str) -> bool:
    """Return True if a relevant part of the text is base64 or the like."""
    words = text.encode("utf-8", "surrogatepass").translate(_WORD).split()
    return sum(len(word) for word in words if len(word) >= _LONGEST_WORD) > _ENCODED * len(text)


def item_texts(items: Iterable[InputItem | Item]) -> tuple[list[str], int]:
    """Return (the texts in items of a conversation that are counted, the tokens of everything that is not
    text)."""
    texts: list[str] = []
    fixed = 0
    for item in items:
        fixed += _gather(item, texts)
    return texts, fixed


def request_texts(
    request: CreateResponse, history: Iterable[InputItem | Item] = ()
) -> tuple[list[str], int, int]:
    """Return (the texts of a whole request that are counted, the number of items, the tokens of everything
    that is not text)."""
    items = [*history, *(request.input if isinstance(request.input, list) else ())]
    texts, fixed = item_texts(items) if items else ([], 0)
    framed = len(items)
    for text in (request.instructions, request.input):
        if isinstance(text, str):
            texts.append(text)
            framed += 1
    if request.tools:
        texts.append(encode(list(map(_shown, request.tools))).decode())
    return texts, framed, fixed


def _shown(tool: ToolParam) -> ToolParam:
    """Return a tool as its model reads it: surfaces differ in whether they have `strict`, which is for the
    server."""
    return replace(tool, strict=UNSET) if isinstance(tool, FunctionToolParam) else tool


def measured_items(items: Sequence[InputItem | Item], *, most: int | None = None) -> Measured:
    """Return the measurement of items of a conversation. `most` is the limit in characters; of a longer text,
    a sample is measured."""
    texts, fixed = item_texts(items)
    return _measured(texts, len(items), fixed, most)


def measured_output(items: Sequence[InputItem | Item], *, most: int | None = None) -> Measured:
    """Return the measurement of what a model has written: without the framing, which it does not write."""
    texts, fixed = item_texts(items)
    return _measured(texts, 0, fixed, most)


def measured_request(
    request: CreateResponse, history: Iterable[InputItem | Item] = (), *, most: int | None = None
) -> Measured:
    """Return the measurement of a whole request, as `request_tokens` counts it."""
    texts, items, fixed = request_texts(request, history)
    return _measured(texts, items, fixed, most, may_correct=True)


def _measured(
    texts: Iterable[str], items: int, fixed: int, most: int | None, *, may_correct: bool = False
) -> Measured:
    """Return the measurement of these texts with the framing of that number of items; of texts with more than
    `most` characters, a sample is measured. `may_correct` is True if its count may correct other
    estimates."""
    text, scale = " ".join(texts), 1.0
    if most is not None and len(text) > most:
        each, step = most // _SLICES, len(text) // _SLICES
        scale = len(text) / max(1, each * _SLICES)
        text = " ".join(text[start : start + each] for start in range(0, step * _SLICES, step))
    cost = text_cost(text)
    cost = Cost(cost.ascii * scale + TOKENS_PER_ITEM * items, cost.other * scale)
    return Measured(cost, fixed, may_correct and len(text) >= _LONGEST_WORD and _is_encoded(text))


_UNCOUNTED: Final = frozenset({"type", "id", "status", "role", "call_id", "annotations", "logprobs", "phase"})


def _gather(value: Any, texts: list[str]) -> int:
    """Append the texts in a value to `texts`. Returns the tokens of everything that is not text."""
    if type(value) is OutputTextContent:  # most outputs consist of these, and nothing else in them counts
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
        fixed = 0
        for name, each in value.items():
            if name == "encrypted_content" and isinstance(each, str):
                fixed += len(each) // 4
            elif name not in _UNCOUNTED:
                fixed += _gather(each, texts)
        return fixed
    if isinstance(value, list):
        fixed = 0
        for each in value:
            fixed += _gather(each, texts)
        return fixed
    return 1 if isinstance(value, int | float) else 0


def _kind(byte: int) -> str:
    """Return the kind of character that a byte of UTF-8 begins. The bytes after the first of a character are
    left out before."""
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
_LETTERS_ONLY: Final = bytes(byte if byte in b"aA" else 0x20 for byte in range(256))
_WORD: Final = bytes(
    byte if (byte < 0x80 and chr(byte).isalnum()) or byte in b"+/=_-" else 0x20 for byte in range(256)
)


# `TokenEstimator` is the counter that is always available. It begins with an estimate that fits common
# vocabularies and corrects it for each family of models by the counts of upstreams, so that after some
# requests it is close to the model's own tokenizer. An upstream's count may be wrong, or of more than the
# text: a correction stays between half and twice the estimate.

AnyItem = InputItem | Item

MAX_FAMILIES: Final = 64
MAX_TEXTS: Final = 4096
MOST: Final = 2.0
"""The limit of a correction, which multiplies or divides by at most this."""
_BELIEVED: Final = 4  # times the estimate without correction; a count beyond that is of something else
_RATE: Final = 0.3  # the part of an estimate's error that is corrected at once
_MISSED: Final = 0.4  # the largest error of one count that is used, as a logarithm
_PULL: Final = 0.01  # the part of a correction that each count takes back
_ROUGH: Final = (
    100.0  # tokens of a request whose count says half as much as a long one's, since servers add some
)

_Value = TypeVar("_Value")


class TokenCounter(Protocol):
    """Counts tokens as `model` would, by its name upstream; "" is any model. Never raises for a model that is
    not known, and may be called from several threads."""

    def text(self, text: str, model: str = "") -> int:
        """Return the number of tokens of a text."""
        ...

    def item(self, item: AnyItem, model: str = "") -> int:
        """Return the number of tokens of one item of a conversation, with its framing."""
        ...

    def request(self, request: CreateResponse, history: Iterable[AnyItem] = (), model: str = "") -> int:
        """Input tokens of a request: instructions, tools, `history` (the items that `previous_response_id`
        stands for) and input."""
        ...


class ContentCache(Generic[_Value]):
    """Caches values by the content of the texts from which they were computed; the last `most` used are kept.
    For a long text only its digest is kept."""

    _SHORT: Final = 64

    def __init__(self, most: int = MAX_TEXTS) -> None:
        self._most = most
        self._values: OrderedDict[tuple[str, str | bytes], _Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str, scope: str = "") -> _Value | None:
        """Return the value of a text; `scope` separates those of several tokenizers."""
        key = self._key(text, scope)
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, text: str, value: _Value, scope: str = "") -> _Value:
        """Store a value. Returns the same value."""
        with self._lock:
            self._values[self._key(text, scope)] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._values)

    def _key(self, text: str, scope: str) -> tuple[str, str | bytes]:
        if len(text) <= self._SHORT:
            return scope, text
        return scope, blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class TokenEstimator:
    """The built-in `TokenCounter`: no vocabulary, linear in the text, corrected by `learn`. Use one for each
    trust domain, such as a key, since its corrections depend on the texts behind them. At most
    `max_families` corrections are kept, those used last; `costs` may be shared."""

    def __init__(self, max_families: int = MAX_FAMILIES, costs: ContentCache[Cost] | None = None) -> None:
        self._limit = max_families
        self._families: OrderedDict[str, _Correction] = OrderedDict()
        self._costs: ContentCache[Cost] = ContentCache() if costs is None else costs

    def text(self, text: str, model: str = "") -> int:
        cost = self._costs.get(text) or self._costs.put(text, text_cost(text))
        return cost_tokens(cost, text, self._factors(model))

    def item(self, item: AnyItem, model: str = "") -> int:
        return self.tokens(measured_items([item]), model)

    def request(self, request: CreateResponse, history: Iterable[AnyItem] = (), model: str = "") -> int:
        return self.tokens(measured_request(request, history), model)

    def tokens(self, measured: Measured, model: str = "") -> int:
        """Return the number of tokens of the measurement."""
        return measured.tokens(self._factors(model)) if self._families else measured.tokens()

    def sample_count(self, model: str) -> int:
        """Return the number of requests from which the correction of this model's family was learned."""
        known = self._families.get(_family(model))
        return 0 if known is None else known.requests

    def learn(self, model: str, measured: Measured, counted: int) -> bool:
        """Correct the estimates by what an upstream counted; Returns whether the count was used. Requests
        with images, files, sealed or encoded texts are not, nor are counts that can't be of the same text,
        judged by the uncorrected estimate, so that no count decides which later ones are used."""
        estimated = measured.tokens()
        if measured.fixed or measured.encoded or estimated <= 0:
            return False
        if estimated > counted * _BELIEVED or counted > estimated * _BELIEVED:
            return False
        family = _family(model)
        correction = self._families.pop(family, None) or _Correction()
        correction.learn(measured.cost, counted)
        self._families[family] = correction
        while len(self._families) > self._limit:
            self._families.popitem(last=False)
        return True

    def _factors(self, model: str) -> Factors:
        known = self._families.get(_family(model)) if self._families else None
        return UNCORRECTED if known is None else known.factors


class _Correction:
    """The factors of one model family. Each count changes both in proportion to their part in the text
    (normalised least mean squares on a logarithmic scale)."""

    __slots__ = ("factors", "requests")

    def __init__(self) -> None:
        self.factors = UNCORRECTED
        self.requests = 0

    def learn(self, cost: Cost, counted: int) -> None:
        whole = cost.ascii + cost.other
        missed = math.log(counted / (cost.ascii * self.factors.ascii + cost.other * self.factors.other))
        step = _RATE * whole / (whole + _ROUGH) * min(max(missed, -_MISSED), _MISSED)
        parts = (cost.ascii / whole, cost.other / whole)
        power = sum(part * part for part in parts)
        self.factors = Factors(
            *(
                min(max(factor ** (1 - _PULL * part) * math.exp(step * part / power), 1 / MOST), MOST)
                for factor, part in zip(self.factors, parts, strict=True)
            )
        )
        self.requests += 1


def _family(model: str) -> str:
    return model_identity(model).family
