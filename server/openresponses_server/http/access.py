"""What a request's key or token gives access to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from openresponses_server.errors import HttpError

_CHALLENGE: Final = {"www-authenticate": "Bearer"}


class Access(Struct, frozen=True, eq=False):
    """The access that a key or token gave when it was read."""

    owner: str
    models: tuple[str, ...] | None
    """The names of models, with `*` and `?` as wildcards; None: all."""
    again: Callable[[], Access | None]
    """What it gives access to now; None if it is not accepted any more."""
    is_known: bool = True
    """True if this server has checked the key. Otherwise only the upstream that is sent the key checks it,
    and it gives no access to what the operator pays for."""

    def admits(self, model: str) -> bool:
        """Return True if the key may be used for the model of this name, as clients give it."""
        return self.models is None or any(fnmatchcase(model, each) for each in self.models)


ACCESS: Final[ContextVar[Access | None]] = ContextVar("access", default=None)
"""The access of the current request or WebSocket; None for a key of the settings, which gives access to
everything, and for a client on this machine if no keys are required."""


def unknown_key(owner: str) -> Access:
    """The access of a key that this server does not check."""
    access = Access(owner, None, lambda: access, is_known=False)
    return access


def check_known(what: str) -> None:
    """Raises HttpError 403 if nobody has checked the current request's key. `what` is what the request would
    do, for the message."""
    if (access := ACCESS.get()) is not None and not access.is_known:
        raise HttpError(
            403,
            f"Only direct connections from this machine may {what}, since `pass_through` leaves keys "
            "unchecked: set `api_keys` instead.",
        )


def check_access(model: str) -> None:
    """Raises HttpError 401 for a key that has been revoked or has expired since its WebSocket was opened, and
    403 for a model that it is not for, whether there is such a model or not."""
    opened = ACCESS.get()
    if opened is None:
        return
    access = opened.again()
    if access is None:
        raise refused("The API key is not valid.")
    if not access.admits(model):
        raise HttpError(
            403,
            f"The API key may not be used for the model '{model[:80]}'.",
            code="model_not_allowed",
            param="model",
        )


def may_use(model: str) -> bool:
    """Return True if the current request's key may be used for this model."""
    access = ACCESS.get()
    return access is None or access.admits(model)


class KeysWanted(HttpError):
    """A token names a key that is not known: its issuer may have it after `fetch`."""

    def __init__(self, message: str, fetch: Callable[[], Awaitable[None]]) -> None:
        super().__init__(401, message, headers=_CHALLENGE)
        self.fetch = fetch


def refused(message: str) -> HttpError:
    """The error for a request whose key is missing or not accepted."""
    return HttpError(401, message, headers=_CHALLENGE)
