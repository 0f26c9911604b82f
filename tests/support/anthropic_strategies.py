"""Strategies that generate Anthropic messages and streams."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.support.anthropic import closed, delta, frame, opened

Json = dict[str, Any]

_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
_NAME = st.from_regex(r"[a-zA-Z0-9_-]{1,10}", fullmatch=True)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_INPUT = st.dictionaries(_TEXT, _JSON, max_size=2)
_WORD = st.from_regex(r"[A-Za-z0-9+/=]{1,20}", fullmatch=True)


def _fixed(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


_BLOCKS = st.one_of(
    _fixed("text", text=_TEXT),
    _fixed("thinking", thinking=_TEXT | st.just(""), signature=_WORD),
    _fixed("redacted_thinking", data=_WORD),
    _fixed("tool_use", id=st.just(""), name=_NAME, input=_INPUT),
    _fixed("server_tool_use", id=st.just(""), name=_NAME, input=_INPUT),
    _fixed("web_search_tool_result", tool_use_id=st.just(""), content=st.lists(_INPUT, max_size=2)),
    _fixed("compaction", content=_TEXT | st.none()),
)
_COUNT = st.integers(0, 10_000)
_URL = st.from_regex(r"https://[a-z]{1,8}\.example/[a-z]{0,4}", fullmatch=True)
_SEARCHES = st.tuples(
    _TEXT,
    st.lists(
        _fixed(
            "web_search_result", url=_URL, title=_TEXT, encrypted_content=_WORD, page_age=_TEXT | st.none()
        ),
        max_size=2,
    )
    | st.just({"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}),
)
_CITATIONS = st.lists(
    _fixed("web_search_result_location", url=_URL, title=_TEXT, cited_text=_TEXT, encrypted_index=_WORD),
    min_size=1,
    max_size=2,
)


@st.composite
def messages(draw: st.DrawFn) -> Json:
    """A complete message as our own outbound would write it: adjacent texts are joined, the stop reason fits,
    and every count is present."""
    content: list[Json] = []
    searches = 0
    for number, block in enumerate(draw(st.lists(_BLOCKS | _SEARCHES, max_size=6))):
        if isinstance(block, tuple):
            query, results = block
            own = f"srvtoolu_{number}"
            called = {"type": "server_tool_use", "id": own, "name": "web_search", "input": {"query": query}}
            content += [called, {"type": "web_search_tool_result", "tool_use_id": own, "content": results}]
            searches += isinstance(results, list)
            continue
        if block["type"] == "text":
            if content and content[-1]["type"] == "text" and "citations" not in content[-1]:
                continue
            cited = draw(st.none() | _CITATIONS)
            block = block if cited is None else {**block, "citations": cited}
        named = {field: f"id_{number}" for field in ("id", "tool_use_id") if field in block}
        content.append({**block, **named})
    calls = any(block["type"] == "tool_use" for block in content)
    usage: Json = {"input_tokens": draw(_COUNT), "cache_creation_input_tokens": 0}
    if any(block["type"] == "web_search_tool_result" and "srv" in block["tool_use_id"] for block in content):
        usage["server_tool_use"] = {"web_search_requests": searches}
    return {
        "content": content,
        "stop_reason": draw(st.sampled_from(["tool_use" if calls else "end_turn", "max_tokens", "refusal"])),
        "usage": usage | {"cache_read_input_tokens": draw(_COUNT), "output_tokens": draw(_COUNT)},
    }


def _pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[first:last] for first, last in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[Json, list[bytes]]:
    """(message, frames): the message split into deltas at random places, with pings between them."""
    message = draw(messages())
    early = {name: draw(_COUNT) for name in ("input_tokens", "output_tokens")}
    if not any(message["usage"][name] for name in ("input_tokens", "cache_read_input_tokens")):
        early["input_tokens"] = 0  # a count of zero does not replace an earlier one
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    frames = [frame("message_start", message={**head, "usage": early})]
    for index, block in enumerate(message["content"]):
        frames += _block(draw, index, block)
        frames += [frame("ping")] * draw(st.integers(0, 1))
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    frames += [frame("message_delta", delta=ended, usage=message["usage"]), frame("message_stop")]
    return message, frames


def _block(draw: st.DrawFn, index: int, block: Json) -> list[bytes]:
    grown = {"text": "text_delta", "thinking": "thinking_delta"}
    kind = block["type"]
    deltas: list[bytes] = []
    empty = dict(block)
    if kind in grown:
        empty[kind] = ""
        deltas = [delta(index, grown[kind], **{kind: piece}) for piece in _pieces(draw, block[kind])]
    if "citations" in block:
        empty["citations"] = []
        deltas += [delta(index, "citations_delta", citation=each) for each in block["citations"]]
    if kind == "thinking":
        empty["signature"] = ""
        deltas.append(delta(index, "signature_delta", signature=block["signature"]))
    if "input" in block:
        empty["input"] = {}
        text = json.dumps(block["input"], ensure_ascii=draw(st.booleans()))
        if block["input"] or draw(st.booleans()):
            deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in _pieces(draw, text)]
    if kind == "compaction":
        empty["content"] = None
        deltas = [delta(index, "compaction_delta", content=block["content"])]
    fields = {name: value for name, value in empty.items() if name != "type"}
    return [opened(index, kind, **fields), *deltas, closed(index)]
