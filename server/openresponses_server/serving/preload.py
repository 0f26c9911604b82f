"""Imports that a server makes before it listens."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Final

# Libraries import these at their first use, in a request, which would block the event loop for 10 ms.
_BY_FIRST_REQUESTS: Final = (
    "anyio._backends._asyncio",
    "encodings.idna",
    "encodings.utf_16_le",
    "importlib.readers",
    "opentelemetry.trace.propagation.tracecontext",
)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable garbage collection during imports, then freeze the objects: collections find almost nothing
    then, and took a twelfth of the start."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def import_structlog() -> None:
    """Import structlog without rich. Call this before anything else imports structlog."""
    with _without_rich():
        import_module("structlog")


def run_main(module: str) -> None:
    """Import this module and call its `main`."""
    with gc_paused(), _without_rich():
        main = import_module(module).main
    main()


@contextmanager
def _without_rich() -> Iterator[None]:
    """Hide rich, if it is not imported yet, from structlog, which would import it for coloured tracebacks (66
    modules with Pygments): `openresponses_server.observation.logs` prints plain ones."""
    if "rich" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # an import of it fails
    try:
        yield
    finally:
        del sys.modules["rich"]


def import_for_requests() -> None:
    """Import what the first requests would import, if it is installed. cryptography is imported by the first
    sealing: it takes 7 MB, and most servers never seal."""
    for name in _BY_FIRST_REQUESTS:
        with suppress(ModuleNotFoundError):
            import_module(name)
