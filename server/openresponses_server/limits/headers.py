"""What an answer's headers say of a key's limits, in the words of its surface."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from openresponses_server.limits.rates import Standing

Form = Callable[[Standing], Iterator[tuple[str, str]]]
"""The headers of one limit."""


def openai_headers(standing: Standing) -> Iterator[tuple[str, str]]:
    """`x-ratelimit-…`; `reset` is a duration as `1m3s`, to milliseconds below a minute."""
    yield f"x-ratelimit-limit-{standing.name}", str(standing.limit)
    yield f"x-ratelimit-remaining-{standing.name}", str(standing.left)
    yield f"x-ratelimit-reset-{standing.name}", _duration(standing.reset)


def anthropic_headers(standing: Standing) -> Iterator[tuple[str, str]]:
    """`anthropic-ratelimit-…`; `reset` is a time (RFC 3339)."""
    whole_at = datetime.fromtimestamp(math.ceil(time.time() + standing.reset), UTC)
    name = f"anthropic-ratelimit-{standing.name}"
    yield f"{name}-limit", str(standing.limit)
    yield f"{name}-remaining", str(standing.left)
    yield f"{name}-reset", f"{whole_at:%Y-%m-%dT%H:%M:%SZ}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


EXPOSED: Final = [
    name
    for kind in ("requests", "tokens")
    for form in (openai_headers, anthropic_headers)
    for name, _ in form(Standing(kind, 0, 0, 0.0))
]
"""Their names, for the pages that may read them."""
