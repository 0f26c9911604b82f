"""A loop's view as HTML: a fragment for a page, without scripts or styles of its own.

All text of models and tools is escaped. Thinking, inputs and results are `<details>`, closed at first.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

from openresponses_agent.loop import Citation, LoopView, RoundView, ToolResultElement, ToolStatus
from openresponses_cli.agents.screen import CALLING, SIGNS, input_text, name_of

_LINKS: Final = ("https://", "http://")
_OPEN: Final = frozenset({ToolStatus.FAILED, ToolStatus.DECLINED})  # their text is shown at once
_RANGES: Final = (
    (0, 8),  # control characters except tab and line feed
    (0x0B, 0x1F),
    (0x7F, 0x9F),
    (0x202A, 0x202E),  # directions
    (0x2066, 0x2069),
    (0xD800, 0xDFFF),  # surrogates
)
_REMOVED: Final = dict.fromkeys(code for first, last in _RANGES for code in range(first, last + 1))


def html_of(view: LoopView) -> str:
    """Return the whole view as an `<article class="run">`."""
    query = f'<p class="query">{_text(view.query)}</p>' if view.query else ""
    message = f'<p class="message">{_text(view.message)}</p>' if view.message else ""
    rounds = "".join(map(_round, view.rounds))
    return f'<article class="run" data-end="{_text(view.end)}">{query}{rounds}{message}</article>'


def element_html(element: ToolResultElement) -> str:
    """Return one call as a `<section class="tool">` with its status as `data-status`."""
    sign, words, _ = SIGNS[element.status]
    duration = "" if element.seconds is None else f" in {element.seconds:.1f} s"
    parts = [
        f'<h4><span class="name">{_text(name_of(element))}</span> '
        f'<span class="status">{sign} {_text(words)}{duration}</span></h4>',
        _folded("input", "Input", _input(element)),
    ]
    if element.notes:
        parts.append(f'<p class="note">{_text("; ".join(element.notes))}</p>')
    if element.progress and element.status is ToolStatus.RUNNING:
        lines = _text("\n".join(element.progress))
        parts.append(f'<pre class="progress" role="status">{lines}</pre>')
    if element.result is not None:
        parts.append(_folded("result", "Result", element.result))
    if element.error is not None:
        parts.append(_folded("error", "Error", element.error, is_open=element.status in _OPEN))
    return f'<section class="tool" data-status="{element.status}">{"".join(parts)}</section>'


def _round(view: RoundView) -> str:
    retries = "".join(f'<p class="retry">{_text(why)}: asked again</p>' for why in view.retries)
    thinking = _folded("thinking", "Thinking", view.thinking) if view.thinking else ""
    text = f'<div class="text">{_text(view.text.strip())}</div>' if view.text.strip() else ""
    calling = f'<p class="calling" role="status">{CALLING}</p>' if view.is_calling else ""
    elements = "".join(map(element_html, view.elements))
    notes = _citations(view.citations) + _limit(view.max_tool_calls)
    return f'<section class="round">{retries}{thinking}{text}{calling}{elements}{notes}</section>'


def _citations(citations: Sequence[Citation]) -> str:
    """Return the cited pages as a list; addresses of the web are links."""
    shown = "".join(f"<li>{_cited(each)}</li>" for each in citations)
    return f'<ol class="citations">{shown}</ol>' if shown else ""


def _cited(page: Citation) -> str:
    title, url = _text(page.title.strip() or page.url), _text(page.url)
    if not page.url.startswith(_LINKS):
        return f"{title} <code>{url}</code>"
    return (
        f'<a href="{url}" rel="noopener noreferrer nofollow" target="_blank">{title}</a> <code>{url}</code>'
    )


def _limit(max_tool_calls: int | None) -> str:
    if max_tool_calls is None:
        return ""
    return f'<p class="note">The server ran {max_tool_calls} calls, as many as allowed.</p>'


def _input(element: ToolResultElement) -> str:
    if isinstance(element.input, dict | list):
        return msgspec.json.format(msgspec.json.encode(element.input), indent=2).decode()
    return input_text(element)


def _folded(name: str, title: str, text: str, is_open: bool = False) -> str:
    state = " open" if is_open else ""
    return f'<details class="{name}"{state}><summary>{title}</summary><pre>{_text(text)}</pre></details>'


def _text(text: str) -> str:
    """Return the text escaped, without control characters and surrogates, which HTML does not allow, and
    without characters that change the direction of text."""
    return escape(text.translate(_REMOVED))
