"""Acts as a person in the chat: chooses an effort in the picker, asks, and lets another extension ask."""

from __future__ import annotations

import time
from typing import Any

from tests.clients.vscode.page import SECONDS, Page
from tests.support.upstream import ScriptedUpstream

_EFFORT, _OPTION = ".model-picker-config", ".chat-model-picker-config-option"
_HOVER = ".chat-model-hover"
_SEND = ".chat-input-toolbars .codicon-arrow-up-compact:not(.disabled)"
_INPUT, _POPUP = ".interactive-input-part", ".action-widget"


def choose_and_ask(page: Page, upstream: ScriptedUpstream) -> dict[str, Any]:
    """Return the efforts that the picker offers, and its text about the model."""
    before = len(upstream.received)
    page.click(".model-picker-name")
    page.click(f"{_POPUP} .monaco-list-row", "Other Models")
    page.point(f"{_POPUP} .monaco-list-row", "text\nscripted")
    page.place(_HOVER)
    description = page.text(_HOVER)
    page.click(f"{_POPUP} .monaco-list-row", "text\nscripted")
    page.gone(_POPUP)
    page.click(_EFFORT)
    page.place(_OPTION)
    offered = page.texts(_OPTION)
    page.picture("vscode-effort.png", _INPUT, _POPUP)
    page.click(_OPTION, "High")
    page.place(_EFFORT, "High")
    page.escape()
    page.gone(_POPUP)
    page.click(f"{_INPUT} .monaco-editor")
    page.write("@openresponses Hello")
    page.click(_SEND)
    _wait(upstream, before + 1, page)
    page.click(".statusbar-item-label", "Ask")
    _wait(upstream, before + 2, page)
    return {"offered": offered, "said": description}


def _wait(upstream: ScriptedUpstream, requests: int, page: Page) -> None:
    deadline = time.monotonic() + SECONDS
    while len(upstream.received) < requests:
        assert time.monotonic() < deadline, page.text("body")[-500:]
        time.sleep(0.05)
