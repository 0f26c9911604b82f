"""Replaces random and changing values in the text that a server sent, so that snapshots can be compared.

Ids are numbered by their prefix in order of appearance (`resp_1`, `msg_1`, `resp_2` …), also in the base64 of
VS Code's stateful markers and of InvokeModel's chunks. Every time becomes the same time, latencies become
none, sealed content becomes `(sealed)`, and the server's address becomes its name. No other byte changes.
"""

import re
from base64 import b64decode, b64encode
from collections import Counter

TIME = "1700000000"
TIME_WRITTEN = "2023-11-14T22:13:20Z"
_ID = re.compile(r"([a-z]+)([_-])[0-9a-f]{24,32}(?![0-9a-f])")
_TIMES = re.compile(r'("(?:created|(?:created|updated|completed)_at)": ?)\d{10}(?:\.\d+)?\b')
_WRITTEN = re.compile(r'("(?:created|updated)": ?)"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"')
_LASTED = re.compile(r'("(?:latencyMs|invocationLatency)": ?)\d+')
_MARKER = re.compile(r'"data":"([^"]+)","mimeType":"stateful_marker"')
_CHUNK = re.compile(r'\{"chunk":\{"bytes":"([^"]+)"\}\}')
_SEALED = re.compile(r"(orb1\.s\.[a-z0-9_-]+\.)[A-Za-z0-9_=-]+")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d{4,5}")


def _chunk(found: re.Match[str]) -> str:
    return f'{{"chunk":{{"bytes":(base64 of {b64decode(found[1]).decode()})}}}}'


class Normalised:
    """Normalises one text after another, with the same ids in all of them."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def __call__(self, text: str) -> str:
        text = _MARKER.sub(self._marker, text)
        text = _CHUNK.sub(_chunk, text)
        text = _ID.sub(self._id, text)
        text = _TIMES.sub(rf"\g<1>{TIME}", text)
        text = _WRITTEN.sub(rf'\g<1>"{TIME_WRITTEN}"', text)
        text = _LASTED.sub(r"\g<1>0", text)
        text = _SEALED.sub(r"\1(sealed)", text)
        return _ADDRESS.sub("server.example", text)

    def _id(self, found: re.Match[str]) -> str:
        whole, prefix, joint = found[0], found[1], found[2]
        if whole not in self._ids:
            self._counts[prefix] += 1
            self._ids[whole] = f"{prefix}{joint}{self._counts[prefix]}"
        return self._ids[whole]

    def _marker(self, found: re.Match[str]) -> str:
        named = _ID.sub(self._id, b64decode(found[1]).decode())
        return f'"data":"{b64encode(named.encode()).decode()}","mimeType":"stateful_marker"'
