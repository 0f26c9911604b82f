"""What a user writes as an upstream's address → the address below which its paths stand."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_VERSION: Final = "/v1"


def base_url(url: str) -> str:
    """As OpenAI's clients take it: `/v1` where no path is given, no slash at the end.

    Raises ValueError for what is not an http(s) address.
    """
    path = _path_of(url)
    return url.rstrip("/") + ("" if path else _VERSION)


def versioned_base_url(url: str) -> str:
    """As Anthropic's clients take it: what they add `/v1/messages` to, with or without that `/v1`.

    Raises ValueError for what is not an http(s) address.
    """
    path = _path_of(url)
    return url.rstrip("/") + ("" if path.endswith(_VERSION) else _VERSION)


def without_password(url: str) -> str:
    """The address as logs and messages may name it: neither what stands before an `@` nor a query. A password
    may hold any sign, so that what stands before the last `@` goes first."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{separator}{rest.rpartition('@')[2].partition('?')[0]}"


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{without_password(url)!r} is not an http:// or https:// address")
    if parts.query or parts.fragment:
        raise ValueError(
            f"{without_password(url)!r} has a query or a fragment, which a base address must not have"
        )
    return parts.path.rstrip("/")
