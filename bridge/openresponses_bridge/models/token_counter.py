"""`TokenCounter`: whoever needs to know how many tokens something is asks one of these.

`TokenEstimator` is the one that is always there. It begins with an estimate that fits common vocabularies and
corrects it for each family of models by what upstreams report, so that after some requests it is near the
model's own tokenizer for the text that is sent to it. What an upstream reports may be wrong, or of something
else than the text; a correction therefore stays between half and twice the estimate, whatever comes.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Generic, Protocol, TypeVar

from openresponses_bridge.models.identity import model_identity
from openresponses_bridge.models.tokens import (
    UNCORRECTED,
    Cost,
    Factors,
    Measured,
    cost_tokens,
    measured_items,
    measured_request,
    text_cost,
)
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse

AnyItem = InputItem | Item

MAX_FAMILIES: Final = 64
MAX_TEXTS: Final = 4096
MOST: Final = 2.0
"""A correction multiplies and divides by this at most."""
_BELIEVED: Final = 4  # times what is estimated without correction; a count beyond that is of something else
_RATE: Final = 0.3  # of what an estimate missed, how much is put right at once
_MISSED: Final = 0.4  # as a logarithm, the most that one count can miss by
_PULL: Final = 0.01  # of a correction, how much each count takes back
_ROUGH: Final = (
    100.0  # tokens of a request whose count says half as much as a long one's, since servers add some
)

_Value = TypeVar("_Value")


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
    """The built-in `TokenCounter`: no vocabulary, linear in the text, corrected by `learn`. One is for those
    who may know of each other what their texts are like: one key, or a program of one's own. At most
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
        """Tokens of what was measured."""
        return measured.tokens(self._factors(model))

    def learned(self, model: str) -> int:
        """From how many requests the correction of this model's family was made."""
        known = self._families.get(_family(model))
        return 0 if known is None else known.requests

    def learn(self, model: str, measured: Measured, counted: int) -> bool:
        """An upstream has counted what was measured; whether that was taken in. It is not when there are
        images, files, sealed or encoded texts in it, and when it can't be of the same text: by what is
        estimated without correction, so that no count decides which others are believed."""
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
        known = self._families.get(_family(model))
        return UNCORRECTED if known is None else known.factors


class _Correction:
    """The factors of one family. Each count moves both by a part of what was missed, in the proportion in
    which they have a part in the text (normalised least mean squares, on a logarithmic scale)."""

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
