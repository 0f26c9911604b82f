"""Models' own tokenizers, as the settings name them, with data from this machine only.

`tokenizers` reads a `tokenizer.json`. `tiktoken` has encodings by name; it would download data that is not in
its cache (`TIKTOKEN_CACHE_DIR`), which is prevented. Tokens are estimated if a tokenizer can't be used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Final

import structlog

from openresponses_bridge.models.tokens import (
    TOKENS_PER_ITEM,
    AnyItem,
    ContentCache,
    TokenCounter,
    item_texts,
    request_texts,
)
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.upstreams.catalog import bare_name, best_match

TIKTOKEN: Final = "tiktoken:"
_PIECE: Final = 4000  # the most characters of a call: some tokenizers are quadratic in a text without spaces
_log = structlog.get_logger(__name__)

_Encode = Callable[[str], int]
"""A text of bounded length → the number of its tokens."""


class ExactCounter:
    """A `TokenCounter` that uses models' own tokenizers. Each is loaded when it is first needed; one that
    can't be used is logged once."""

    def __init__(self, sources: Mapping[str, str], fallback: TokenCounter) -> None:
        """`sources`: names of models, with wildcards → tokenizers, as in `Settings.tokenizers`. `fallback`
        counts for models without a usable tokenizer."""
        self._sources = sources
        self._fallback = fallback
        self._loaded: dict[str, _Encode | None] = {}
        self._lock = threading.Lock()
        self._cache: ContentCache[int] = ContentCache()

    def with_fallback(self, fallback: TokenCounter) -> ExactCounter:
        """Return these tokenizers with another fallback."""
        other = copy(self)
        other._fallback = fallback
        return other

    def text(self, text: str, model: str = "") -> int:
        source = self._source(model)
        return self._fallback.text(text, model) if source is None else self._count([text], source)

    def item(self, item: AnyItem, model: str = "") -> int:
        source = self._source(model)
        if source is None:
            return self._fallback.item(item, model)
        texts, fixed = item_texts([item])
        return self._count(texts, source) + fixed + TOKENS_PER_ITEM

    def request(self, request: CreateResponse, history: Iterable[AnyItem] = (), model: str = "") -> int:
        source = self._source(model)
        if source is None:
            return self._fallback.request(request, history, model)
        texts, items, fixed = request_texts(request, history)
        return self._count(texts, source) + fixed + TOKENS_PER_ITEM * items

    def _source(self, model: str) -> str | None:
        """The source of a model's tokenizer, if it can be used."""
        names = dict.fromkeys((model, bare_name(model)))
        patterns = (best_match(name, self._sources) for name in names)
        pattern = next((each for each in patterns if each is not None), None)
        if pattern is None:
            return None
        source = self._sources[pattern]
        with self._lock:
            if source not in self._loaded:
                self._loaded[source] = _loaded(source)
        return source if self._loaded[source] is not None else None

    def _count(self, texts: Iterable[str], source: str) -> int:
        return sum(self._pieces(text, source) for text in texts if text)

    def _pieces(self, text: str, source: str) -> int:
        count = self._cache.get(text, source)
        if count is not None:
            return count
        encode = self._loaded[source]
        assert encode is not None
        whole = text.encode("utf-8", "replace").decode()  # halves of surrogate pairs are not text
        pieces = (whole[start : start + _PIECE] for start in range(0, len(whole), _PIECE))
        return self._cache.put(text, sum(map(encode, pieces)), source)


def _loaded(source: str) -> _Encode | None:
    try:
        if source.startswith(TIKTOKEN):
            return _tiktoken(source.removeprefix(TIKTOKEN))
        return _tokenizer(Path(source))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        _log.warning("tokenizer.not_used", tokenizer=source, reason=reason, instead="an estimate")
        return None


def _tiktoken(name: str) -> _Encode:
    import tiktoken.load

    def refuse(blobpath: str) -> bytes:
        raise FileNotFoundError("its data is not in the cache of tiktoken, and nothing is fetched")

    original = tiktoken.load.read_file  # the only one to what is not in its cache
    tiktoken.load.read_file = refuse
    try:
        encoding = tiktoken.get_encoding(name)
    finally:
        tiktoken.load.read_file = original
    return lambda text: len(encoding.encode_ordinary(text))


def _tokenizer(path: Path) -> _Encode:
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
