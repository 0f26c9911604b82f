"""Models' own tokenizers, where the settings name them and their data is on this machine. Nothing is fetched.

`tokenizers` reads a `tokenizer.json`; `tiktoken` has encodings by name, whose data it would fetch if it
did not find it in its cache (`TIKTOKEN_CACHE_DIR`): that way is shut. A model whose tokenizer can't be used
is estimated.
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
_PIECE: Final = 4000  # characters given to a tokenizer at once: some take the square of a text without spaces
_log = structlog.get_logger(__name__)

_Encode = Callable[[str], int]
"""A text of bounded length → how many tokens it is."""


class ExactCounter:
    """A `TokenCounter` that asks a model's own tokenizer: `sources` by names with wildcards (see
    `Settings.tokenizers`); `fallback` counts for other models, and for those whose tokenizer can't be used,
    which is logged once. Tokenizers are loaded when they are first asked for."""

    def __init__(self, sources: Mapping[str, str], fallback: TokenCounter) -> None:
        self._sources = sources
        self._fallback = fallback
        self._loaded: dict[str, _Encode | None] = {}
        self._lock = threading.Lock()
        self._cache: ContentCache[int] = ContentCache()

    def over(self, fallback: TokenCounter) -> ExactCounter:
        """The same tokenizers, with another counter for other models."""
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
        """The tokenizer of a model, if it can be used."""
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
        found = self._cache.get(text, source)
        if found is not None:
            return found
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

    way_out = tiktoken.load.read_file  # the only one to what is not in its cache
    tiktoken.load.read_file = refuse
    try:
        encoding = tiktoken.get_encoding(name)
    finally:
        tiktoken.load.read_file = way_out
    return lambda text: len(encoding.encode_ordinary(text))


def _tokenizer(path: Path) -> _Encode:
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
