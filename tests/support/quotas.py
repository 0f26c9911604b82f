"""A server with two keys and limits for each of them, and answers that use a given number of tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.serving import serving
from tests.support.upstream import Script, ScriptedUpstream, frame, text

KEYS = ("one", "two", "чужой-ключ:{}*")


ONE = {"authorization": "Bearer one"}


TWO = {"x-api-key": "two"}


SAID: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}


SURFACES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "x"},
    "/v1/chat/completions": SAID,
    "/v1/messages": SAID,
}


@contextmanager
def limited(upstream: ScriptedUpstream, *, keys: tuple[str, ...] = KEYS, **limits: int) -> Iterator[str]:
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        limits=Limits(**limits),
        api_keys=[hashed(key) for key in keys],
    )
    with serving(settings) as base:
        yield base


def used(tokens_in: int, tokens_out: int) -> Script:
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": 0}
    return Script([*text("Hi")[:-1], frame(choices=[], usage=usage), b"data: [DONE]\n\n"])
