"""`TokenCounter`: whoever needs to know how many tokens something is asks one of these.

`TokenEstimator` is the one that is always there. It begins with weights that fit common vocabularies and
corrects them for each family of models by what upstreams report, so that after some requests it is near the
model's own tokenizer for the text that is sent to it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Generic, Protocol, TypeVar

from bridge.model_identity import model_identity
from bridge.protocol.input_items import InputItem
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse
from bridge.token_estimate import (
    PRIOR,
    WEIGHTS,
    Measured,
    Sizes,
    measured_items,
    measured_request,
    text_sizes,
)

AnyItem = InputItem | Item

MAX_FAMILIES: Final = 256
MAX_TEXTS: Final = 4096
_BELIEVED: Final = 4.0  # what is counted is at most so many times the estimate, else it is of something else
_RANGE: Final = (0.1, 8.0)  # of a weight, by the one it began with
_MISFIT: Final = 0.04  # by how much counts differ from the best weights, as a share
_ROUGH: Final = 3.0  # and beside that in tokens
_UNCERTAIN: Final = 0.35  # of a weight at the beginning, as a share of it
_DRIFT: Final = 0.01  # of it with each request, since a family's tokenizer changes with its versions
# tokens by which what a server adds may differ from nothing
_ADDED: Final = {"requests": 25.0, "requests_with_tools": 150.0}

_Value = TypeVar("_Value")
_SCALES: Final = tuple(_ADDED.get(name, weight) for name, weight in WEIGHTS.items())
_LOWEST: Final = tuple(_RANGE[0] * weight for weight in PRIOR)
_HIGHEST: Final = tuple(
    10 * _ADDED[name] if name in _ADDED else _RANGE[1] * weight for name, weight in WEIGHTS.items()
)


class TokenCounter(Protocol):
    """Counts tokens as `model` would, by the name under which requests go out to it; "" is any model. Never
    raises for a model that is not known, and may be called from several threads."""

    def text(self, text: str, model: str = "") -> int:
        """Tokens of a text."""
        ...

    def item(self, item: AnyItem, model: str = "") -> int:
        """Tokens of one item of a conversation, with what frames it."""
        ...

    def request(self, request: CreateResponse, history: Iterable[AnyItem] = (), model: str = "") -> int:
        """Input tokens of a request: instructions, tools, `history` (the items that `previous_response_id`
        stands for) and input."""
        ...


class ContentCache(Generic[_Value]):
    """Values by the content of the texts they were made from, those of the last `most` that were asked for.
    Of a long text its digest is kept and not itself."""

    _SHORT: Final = 64

    def __init__(self, most: int = MAX_TEXTS) -> None:
        self._most = most
        self._values: OrderedDict[tuple[str, str | bytes], _Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str, scope: str = "") -> _Value | None:
        """The value of a text; `scope` keeps those of several tokenizers apart."""
        key = self._key(text, scope)
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def put(self, text: str, value: _Value, scope: str = "") -> _Value:
        """Keep it; the same value."""
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
    """The built-in `TokenCounter`: no vocabulary, linear in the text, corrected by `learn`. At most
    `max_families` corrections are kept, those used last."""

    def __init__(self, max_families: int = MAX_FAMILIES) -> None:
        self._limit = max_families
        self._families: OrderedDict[str, _Correction] = OrderedDict()
        self._sizes: ContentCache[Sizes] = ContentCache()

    def text(self, text: str, model: str = "") -> int:
        sizes = self._sizes.get(text) or self._sizes.put(text, text_sizes(text))
        return Measured(sizes, 0).tokens(self.weights(model))

    def item(self, item: AnyItem, model: str = "") -> int:
        return measured_items([item]).tokens(self.weights(model))

    def request(self, request: CreateResponse, history: Iterable[AnyItem] = (), model: str = "") -> int:
        return measured_request(request, history).tokens(self.weights(model))

    def weights(self, model: str) -> Sizes:
        """What each size of a text costs in tokens of this model's family."""
        known = self._families.get(_family(model))
        return PRIOR if known is None else known.weights

    def learned(self, model: str) -> int:
        """From how many requests the correction of this model's family was made."""
        known = self._families.get(_family(model))
        return 0 if known is None else known.requests

    def learn(self, model: str, measured: Measured, counted: int) -> bool:
        """An upstream has counted what was measured; whether that was taken in. It is not when the two can't
        be of the same text, and when most of it is images or files."""
        family = _family(model)
        expected = measured.tokens(self.weights(model))
        tokens = counted - measured.fixed
        if (
            tokens <= 0
            or measured.fixed > tokens
            or not 1 / _BELIEVED <= counted / max(expected, 1) <= _BELIEVED
        ):
            return False
        correction = self._families.pop(family, None) or _Correction()
        correction.learn(measured.sizes, tokens)
        self._families[family] = correction
        while len(self._families) > self._limit:
            self._families.popitem(last=False)
        return True


class _Correction:
    """The weights of one family: a Kalman filter whose observations are requests, each divided by its tokens
    so that a long one does not count more than a short one."""

    __slots__ = ("_spread", "requests", "weights")

    def __init__(self) -> None:
        self.weights: Sizes = PRIOR
        self.requests = 0
        self._spread = [
            [
                (_UNCERTAIN * scale if name not in _ADDED else scale) ** 2 if row == column else 0.0
                for column in range(len(PRIOR))
            ]
            for row, (name, scale) in enumerate(zip(WEIGHTS, _SCALES, strict=True))
        ]

    def learn(self, sizes: Sizes, tokens: int) -> None:
        for index, scale in enumerate(_SCALES):
            self._spread[index][index] += (_DRIFT * scale) ** 2
        shares = [size / tokens for size in sizes]
        there = [index for index, share in enumerate(shares) if share]
        gains = [sum(row[index] * shares[index] for index in there) for row in self._spread]
        certainty = 1 / (
            sum(gains[index] * shares[index] for index in there) + _MISFIT**2 + (_ROUGH / tokens) ** 2
        )
        missed = 1 - sum(self.weights[index] * shares[index] for index in there)
        moved = (weight + gain * certainty * missed for weight, gain in zip(self.weights, gains, strict=True))
        self.weights = tuple(
            min(max(weight, low), high) for weight, low, high in zip(moved, _LOWEST, _HIGHEST, strict=True)
        )
        for row, gain in zip(self._spread, gains, strict=True):
            if gain:
                part = gain * certainty
                row[:] = [each - part * other for each, other in zip(row, gains, strict=True)]
        self.requests += 1


def _family(model: str) -> str:
    return model_identity(model).family
