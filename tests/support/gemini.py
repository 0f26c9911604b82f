"""Streams of `generateContent`, written by hand, recorded or generated; and the parts of an answer that
clients send back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from openresponses_bridge.dialects.gemini import Inbound, to_gemini
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.input_items import FunctionCallOutputParam, MessageParam
from openresponses_bridge.protocol.items import FunctionCall
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import SSEDecoder
from tests.support import checked_inbound

Json = dict[str, Any]
SIGNATURE = "thoughtSignature"


def chunk(*parts: Json, finish: Any = None, usage: Json | None = None, **candidate: Any) -> bytes:
    """One chunk of the first candidate."""
    entry: Json = {"index": 0, **candidate}
    if parts:
        entry["content"] = {"role": "model", "parts": list(parts)}
    if finish is not None:
        entry["finishReason"] = finish
    return encode({"candidates": [entry]} | ({} if usage is None else {"usageMetadata": usage}))


class CheckedGemini(checked_inbound.CheckedInbound):
    """The inbound of this dialect, and the sealer that seals its signatures."""

    def __init__(
        self, frames: Iterable[checked_inbound.Frame] = (), *, key: bytes | None = None, **more: Any
    ) -> None:
        self.sealer = Sealer(key)
        super().__init__(lambda machine: Inbound(machine, self.sealer), frames, **more)

    def returned(self) -> list[Json]:
        """The parts of the model's contents when the conversation continues, with an answer to each call."""
        history: list[Any] = [MessageParam("user", "Hi")]
        for item in self.response.output:
            history.append(item)
        calls = [item for item in self.response.output if isinstance(item, FunctionCall)]
        history += [FunctionCallOutputParam(call.call_id, "seen") for call in calls]
        body, diagnostics = to_gemini(
            CreateResponse(model="gemini-3-pro", input="Go on."), history=history, sealer=self.sealer
        )
        assert [str(case) for case in diagnostics if case.where != "content.annotations"] == []
        return [part for each in body["contents"] if each["role"] == "model" for part in each["parts"]]


def recorded(path: Path) -> list[bytes]:
    """The payloads of a recorded stream; for a whole answer, that one payload."""
    data = path.read_bytes()
    if path.suffix == ".jsonl":  # the last streamed exchange of several
        exchanges = [json.loads(line)["response"] for line in data.splitlines() if line.strip()]
        return [encode(each) for each in [each for each in exchanges if isinstance(each, list)][-1]]
    if path.suffix == ".json":
        return [data]
    if data.lstrip().startswith(b"data:"):
        decoder = SSEDecoder()
        return [frame.data for frame in decoder.feed(data) + decoder.close()]
    return [line for line in data.splitlines() if line.strip()]


def parts_of(frames: Iterable[bytes]) -> list[Json]:
    """The parts of a stream as clients send them back: adjacent pieces of text without a signature are
    joined; empty parts, and arguments that arrive in pieces, are left out."""
    parts: list[Json] = []
    for value in map(json.loads, frames):
        for each in value if isinstance(value, list) else [value]:
            for candidate in each.get("candidates", ())[:1]:
                for part in candidate.get("content", {}).get("parts", ()):
                    _append(parts, dict(part))
    return parts


def _append(found: list[Json], part: Json) -> None:
    if "functionCall" in part:
        found.append(part | {"functionCall": {"args": {}, **part["functionCall"]}})
        return
    if not part or (part.get("text") == "" and SIGNATURE not in part):
        return
    last = found[-1] if found else {}
    alike = all("text" in each and SIGNATURE not in each for each in (last, part))
    if alike and last.get("thought") == part.get("thought"):
        last["text"] += part["text"]
    else:
        found.append(part)


def without_made_ids(parts: Iterable[Json], original: Iterable[Json]) -> list[Json]:
    """The parts without the ids that were made for calls that had none."""
    made = []
    for part, counterpart in zip(parts, original, strict=True):
        if "functionCall" in part and "id" not in counterpart.get("functionCall", {}):
            part = part | {"functionCall": {k: v for k, v in part["functionCall"].items() if k != "id"}}
        made.append(part)
    return made


_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_SIGNED = st.from_regex(r"[A-Za-z0-9+/_-]{1,12}={0,2}", fullmatch=True)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_CALL = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
        "args": st.dictionaries(_TEXT, _VALUE, max_size=2),
    }
)
_PART = st.one_of(
    st.fixed_dictionaries({"text": _TEXT}),
    st.fixed_dictionaries({"text": _TEXT, "thought": st.just(True)}),
    st.fixed_dictionaries({"functionCall": _CALL}),
    st.fixed_dictionaries({"executableCode": st.fixed_dictionaries({"code": _TEXT})}),
    st.fixed_dictionaries({"toolCall": st.fixed_dictionaries({"toolType": _TEXT, "args": _VALUE})}),
)


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Chunks with any parts, signed or unsigned, that end with STOP."""
    parts: list[Json] = []
    for number, part in enumerate(draw(st.lists(_PART, min_size=1, max_size=7))):
        if "functionCall" in part:
            part = {"functionCall": part["functionCall"] | {"id": f"c{number}"}}
        parts.append(part | draw(st.just({}) | st.fixed_dictionaries({SIGNATURE: _SIGNED})))
    frames = []
    while parts:
        size = draw(st.integers(1, len(parts)))
        frames.append(chunk(*parts[:size]))
        parts = parts[size:]
    last = draw(st.just({}) | st.fixed_dictionaries({"text": st.just(""), SIGNATURE: _SIGNED}))
    return [*frames, chunk(last, finish="STOP")]
