"""What a serving process imports before it listens, and what it leaves out."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Final

# Others import these when they are first used, which is within a request: 10 ms in which no other goes on.
_BY_FIRST_REQUESTS: Final = (
    "anyio._backends._asyncio",
    "encodings.idna",
    "encodings.utf_16_le",
    "importlib.readers",
    "opentelemetry.trace.propagation.tracecontext",
)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without looks for garbage: modules leave next to none, and what they define stays. It is not looked at
    later either. A twelfth of a start went into it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def import_structlog() -> None:
    """Import it without rich, which it looks for to colour tracebacks:
    `openresponses_server.observation.logs` shows them plainly. With Pygments those are 66 modules. To be
    called before anything else imports structlog."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # an import of it fails
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]


def import_for_requests() -> None:
    """Import what requests would else wait for; what is not installed is not used. cryptography is left to
    the first sealing: it takes 7 MB, and most servers never seal."""
    for name in _BY_FIRST_REQUESTS:
        with suppress(ModuleNotFoundError):
            import_module(name)
