"""Data parts ↔ content of input items: images, texts and files."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    Part,
)
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.content import InputFileContent, InputImageParam, InputTextContent
from openresponses_bridge.protocol.items import ToolOutputPart

ContentParam = InputTextContent | InputImageParam | InputFileContent

# magic bytes of image files, which override the declared type
_MAGIC = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"BM"), "image/bmp"),
)
_TEXTUAL = re.compile(r"text/|application/(json|xml|javascript|x-yaml|[\w.-]+\+(json|xml))|json$")
_URL = re.compile(rb"(https?://|data:)")
_HEAD = re.compile(r"data:(?P<mime>[^;,]*)(?:;[^;,]*)*?(?P<base64>;base64)?", re.IGNORECASE)
"""Matches what is before the comma of a data URL."""
_LONGEST_HEAD = 1024
DEFAULT_IMAGE = "image/png"
DEFAULT_FILE = "application/octet-stream"


def image_mime(data: bytes, declared: str) -> str:
    """Return the media type of an image: by its bytes if they are known, else as declared."""
    for magic, mime in _MAGIC:
        if magic.match(data):
            return mime
    if declared.endswith("/*") or not declared:
        return DEFAULT_IMAGE
    return "image/jpeg" if declared == "image/jpg" else declared


def data_url(data: bytes, mime: str) -> str:
    """Return bytes as a data URL."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def content_of(part: LanguageModelDataPart) -> ContentParam:
    """Return the content for a data part. The data of an image part may be its URL."""
    mime = part.mime_type.strip().lower()
    if mime.startswith("image/"):
        match = _URL.match(part.data)
        url = (
            part.data.decode("utf-8", "replace")
            if match
            else data_url(part.data, image_mime(part.data, mime))
        )
        return InputImageParam(image_url=url)
    if _TEXTUAL.match(mime):
        return InputTextContent(part.data.decode("utf-8", "replace"))
    return InputFileContent(filename="data", file_data=data_url(part.data, mime or DEFAULT_FILE))


def part_of_url(url: str, fallback: str) -> Part | None:
    """Return the data part for a data URL; None for any other URL, and for data that can't be read."""
    head, comma, encoded = url.partition(",")
    match = _HEAD.fullmatch(head) if comma and len(head) <= _LONGEST_HEAD else None
    if match is None or not match.group("base64"):
        return None
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        return None
    mime = match.group("mime") or fallback
    return LanguageModelDataPart(data, image_mime(data, mime) if mime.startswith("image/") else mime)


def text_or_nothing(text: str) -> list[Part]:
    """Return a text part; none for an empty text."""
    return [LanguageModelTextPart(text)] if text else []


_TEXT_NODE = 2  # type of a text node in a rendered prompt-tsx tree


def output_of(content: list[Any]) -> str | list[ToolOutputPart]:
    """Return the output of a tool call: a text if all content is text, with blank lines between several;
    otherwise parts."""
    parts = [_content(value) for value in content]
    if all(isinstance(part, InputTextContent) for part in parts):
        return "\n\n".join(part.text for part in parts if isinstance(part, InputTextContent) and part.text)
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
    """Return the text of a prompt-tsx tree; the JSON of any other value."""
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
    """Return a call's output as the content of a tool result part."""
    if isinstance(output, str):
        return text_or_nothing(output)
    return [part for each in output for part in item_parts(each, diagnostics)]


def item_parts(content: Any, diagnostics: Diagnostics) -> list[Part]:
    """Return the content of an input item as parts. An image or file that would have to be downloaded becomes
    a text with its URL."""
    url = getattr(content, "image_url", None) or getattr(content, "file_data", None)
    if isinstance(content, InputImageParam | InputFileContent):
        part = part_of_url(url, "image/png" if content.type == "input_image" else "") if url else None
        if getattr(content, "detail", None) in ("low", "high", "original"):
            diagnostics.loss("input_image.detail", "VS Code chooses the detail itself")
        if part is not None:
            return [part]
        where = url if url and not url.startswith("data:") else getattr(content, "file_url", None)
        diagnostics.loss(content.type, "has no bytes, shown as text")
        return [LanguageModelTextPart(f"[{content.type}: {where or 'not available'}]")]
    text = getattr(content, "text", getattr(content, "refusal", None))
    if isinstance(text, str):
        return text_or_nothing(text)
    diagnostics.loss(str(getattr(content, "type", "content")), "has no part")
    return []
