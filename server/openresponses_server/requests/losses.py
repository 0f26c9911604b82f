"""What an answer's headers say of the losses of its request: ours, and those an upstream reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.protocol.beyond import names_of
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.upstreams.base import LOSSES_HEADER

_LONGEST_HEADER: Final = 1000  # characters


def losses_of(*reports: Diagnostics | None) -> list[Diagnostic]:
    """The losses of these reports, in order."""
    found: list[Diagnostic] = []
    for report in reports:
        if report is not None:
            found += report.of("loss")
    return found


def unknown_fields(request: CreateResponse) -> list[Diagnostic]:
    """What the client sent that is not known, where no upstream is asked about it."""
    return [Diagnostic("loss", name, "is not known") for name in names_of(request.beyond)]


def reported_losses(losses: Iterable[Diagnostic], inner: str = "") -> list[str]:
    """As the header has them; `inner` is what an upstream says in its own, which is bounded."""
    ours = [f"{loss.where}: {loss.what}" for loss in losses]
    if not inner:
        return ours
    return [*ours, *filter(None, (each.strip() for each in inner[:_LONGEST_HEADER].split(";")))]


def loss_header(reported: Iterable[str]) -> dict[str, str]:
    """The header, where there are losses: bounded, and printable whatever somebody calls a field."""
    said = "; ".join(reported)[:_LONGEST_HEADER]
    if not said:
        return {}
    printable = "".join(sign if sign.isascii() and sign.isprintable() else "?" for sign in said)
    return {LOSSES_HEADER: printable}
