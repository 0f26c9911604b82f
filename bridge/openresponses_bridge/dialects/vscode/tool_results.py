"""The content of a tool's answer ↔ `function_call_output.output`."""

from __future__ import annotations

import json
from typing import Any

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    Part,
)
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.vscode.media import content_of, part_of_url, text_or_nothing
from openresponses_bridge.protocol.content import InputFileContent, InputImageParam, InputTextContent
from openresponses_bridge.protocol.items import ToolOutputPart

_TEXT_NODE = 2  # the number of a text node in a rendered prompt-tsx tree


def output_of(content: list[Any]) -> str | list[ToolOutputPart]:
    """Text joined where there is nothing else; empty where there is nothing."""
    parts = [_content(value) for value in content]
    if all(isinstance(part, InputTextContent) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, InputTextContent))
    return [part for part in parts if not (isinstance(part, InputTextContent) and not part.text)]


def _content(value: Any) -> InputTextContent | InputImageParam | InputFileContent:
    if isinstance(value, LanguageModelTextPart):
        return InputTextContent(value.value)
    if isinstance(value, LanguageModelDataPart):
        return content_of(value)
    if isinstance(value, LanguageModelPromptTsxPart):
        return InputTextContent(text_of_tree(value.value))
    return InputTextContent(value if isinstance(value, str) else _plain(value))


def text_of_tree(tree: Any) -> str:
    """The text of a prompt-tsx tree; its JSON for any other value."""
    texts: list[str] = []
    todo = [tree.get("node", tree)] if isinstance(tree, dict) else []
    while todo:
        node = todo.pop()
        if not isinstance(node, dict):
            continue
        if node.get("type") == _TEXT_NODE and isinstance(node.get("text"), str):
            texts.append(node["text"])
        children = node.get("children")
        todo += reversed(children) if isinstance(children, list) else []
    return "".join(texts) if texts else _plain(tree)


def _plain(value: Any) -> str:
    bare = (
        {name: each for name, each in value.items() if name != "$mid"} if isinstance(value, dict) else value
    )
    return json.dumps(bare, ensure_ascii=False, default=str)


def content_parts(output: str | list[Any], diagnostics: Diagnostics) -> list[Any]:
    """An output as the content of a tool result part."""
    if isinstance(output, str):
        return text_or_nothing(output)
    return [part for each in output for part in item_parts(each, diagnostics)]


def item_parts(content: Any, diagnostics: Diagnostics) -> list[Part]:
    """One content of an input item as parts. What only a download could show is named in text."""
    url = getattr(content, "image_url", None) or getattr(content, "file_data", None)
    if isinstance(content, InputImageParam | InputFileContent):
        part = part_of_url(url, "image/png" if content.type == "input_image" else "") if url else None
        if getattr(content, "detail", None) in ("low", "high", "original"):
            diagnostics.loss("input_image.detail", "VS Code chooses itself")
        if part is not None:
            return [part]
        where = url if url and not url.startswith("data:") else getattr(content, "file_url", None)
        diagnostics.loss(content.type, "no bytes in it, named as text")
        return [LanguageModelTextPart(f"[{content.type}: {where or 'not available'}]")]
    text = getattr(content, "text", getattr(content, "refusal", None))
    if isinstance(text, str):
        return text_or_nothing(text)
    diagnostics.loss(str(getattr(content, "type", "content")), "has no part")
    return []
