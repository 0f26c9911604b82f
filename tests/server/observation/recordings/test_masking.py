"""No key is in a recording: in headers, addresses, bodies, and where an upstream repeats it."""

import json
from typing import Any

import pytest

from openresponses_bridge.protocol import secrets
from openresponses_server.observation.recordings import masking
from openresponses_server.observation.recordings.masking import (
    MASK,
    Secrets,
    StreamMask,
    hidden_in,
    masked_address,
    masked_body,
    masked_headers,
    masked_value,
    without,
)

KEY = "sk-proj-A1b2C3d4E5f6G7h8I9j0"
SECRETS = Secrets([KEY])
M = MASK
PROPERTIES = {"headers": {"description": "HTTP headers", "anyOf": []}, "env": {"type": "object"}}
SCHEMA = {"parameters": {"type": "object", "properties": PROPERTIES}}
TEXT = f"data: your key {KEY} is é wrong, {KEY}\n\ndata: [DONE]\n\n".encode()


def streamed(pieces: list[bytes], secrets: Secrets = SECRETS) -> list[tuple[float, bytes]]:
    mask = StreamMask(secrets)
    chunks = [chunk for at, piece in enumerate(pieces) for chunk in mask.feed(float(at), piece)]
    return chunks + mask.close()


@pytest.mark.parametrize("size", range(1, 60))
def test_a_key_is_taken_out_of_a_stream_wherever_its_chunks_end(size: int) -> None:
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    sent = b"".join(data for _, data in streamed(pieces))
    assert sent == TEXT.replace(KEY.encode(), b"[key]")


@pytest.mark.parametrize("secret", ["geheimnis-für-ä-und-ö", 'with "quotes" and \\ in it', "kürzer"])
@pytest.mark.parametrize("size", [1, 7, 500])
def test_a_secret_of_other_characters_is_taken_out_as_it_is_and_in_json(secret: str, size: int) -> None:
    text = f"{secret}, {json.dumps(secret)}, {json.dumps(secret, ensure_ascii=False)}.".encode()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    sent = b"".join(data for _, data in streamed(pieces, Secrets([secret])))
    assert sent.decode() == '[key], "[key]", "[key]".'


def test_chunks_without_a_key_keep_their_ends_and_times() -> None:
    pieces = [b"data: one\n", b"\n", b"data: \xc3", b"\xa9\n\n", *[b"x" * 900] * 20]
    assert streamed(pieces) == list(enumerate(pieces))
    assert streamed(pieces, Secrets([])) == list(enumerate(pieces))


def test_a_key_over_three_chunks_is_in_the_first_of_them() -> None:
    pieces = [b"a " + KEY[:9].encode(), KEY[9:20].encode(), KEY[20:].encode() + b" b"]
    assert streamed(pieces) == [(0.0, b"a [key]"), (2.0, b" b")]


def test_what_is_held_is_bounded() -> None:
    mask = StreamMask(SECRETS)
    buffered = most = 0
    for _ in range(2000):
        buffered += 100 - sum(len(data) for _, data in mask.feed(0, b"x" * 100))
        most = max(most, buffered)
    assert most < 10_000


class Looking:
    """Finds what `Secrets` does and counts what it looks at."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self.longest = secrets.longest
        self.looked_at = 0

    def spans(self, text: str) -> list[tuple[int, int]]:
        self.looked_at += len(text)
        return self._secrets.spans(text)


@pytest.mark.untraced
@pytest.mark.parametrize(
    "secrets", [[KEY, "key1"], ["kkkk", "kkkkk"], ["k" * 600], ["k" * n for n in range(4, 90)]]
)
@pytest.mark.parametrize(
    "pieces", [[b"k"] * 10_000, [b"key1" * 3_000] * 8, [b"k" * 30_000, *[b"k"] * 5_000], [b"k" * 99] * 300]
)
def test_a_byte_is_looked_at_a_few_times(secrets: list[str], pieces: list[bytes]) -> None:
    """The worst stream: small and large chunks that are full of keys, which overlap each other."""
    looking = Looking(Secrets(secrets))
    mask = StreamMask(looking)
    buffered = most = 0
    for piece in pieces:
        mask.feed(0, piece)
        buffered = mask.held
        most = max(most, buffered)
    mask.close()
    assert looking.looked_at <= 3 * sum(map(len, pieces))
    assert most <= 2 * looking.longest + 4096 + max(map(len, pieces))


@pytest.mark.untraced
@pytest.mark.parametrize("size", [1, 3, 7, 50, 5000, 20_000])
def test_a_run_of_secrets_that_overlap_is_one_wherever_it_is_cut(size: int) -> None:
    text = b"a" + b"k" * 20_000 + b"b" + b"k" * 3
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert b"".join(data for _, data in streamed(pieces, Secrets(["kkkk", "kkkkk"]))) == b"a[key]bkkk"


def test_a_name_is_looked_at_once_however_many_values_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[str]()

    class Named(secrets.NamedField):
        def __init__(self, name: str, *given: Any) -> None:
            looked.append(name)
            super().__init__(name, *given)

    for module in (secrets, masking):
        monkeypatch.setattr(module, "NamedField", Named)
    value = {"n" * 1000: ["a"] * 1000, "password": ["b"] * 1000, "headers": {"x": "c", "y": ["d"]}}
    masked = masked_value(value)
    assert masked["password"] == [MASK] * 1000
    assert masked["headers"] == {"x": MASK, "y": [MASK]}
    assert len(looked) == 4
    looked.clear()
    assert list(hidden_in(value)) == [*["b"] * 1000, "c", "d"]
    assert len(looked) == 4


def test_headers() -> None:
    headers = {
        "Authorization": f"Bearer {KEY}",
        "Accept": "text/event-stream",
        "X-Tenant": "a",
        "Cookie": "b=c",
    }
    assert masked_headers(headers) == {
        "authorization": MASK,
        "accept": "text/event-stream",
        "x-tenant": MASK,
        "cookie": MASK,
    }
    answered = {"Content-Type": "text/event-stream", "Set-Cookie": "id=1", "x-ratelimit-limit-tokens": "5"}
    shown = {"content-type": "text/event-stream", "x-ratelimit-limit-tokens": "5"}
    assert masked_headers(answered, drop=True) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"api_key": "a", "apiKey": "b", "max_tokens": 5}, {"api_key": M, "apiKey": M, "max_tokens": 5}),
        ({"authorization": "x", "auth_token": ["y"]}, {"authorization": M, "auth_token": [M]}),
        ({"tools": [{"server_url": "wss://u:p@h"}]}, {"tools": [{"server_url": f"wss://{M}@h"}]}),
        ({"server_url": "https://h/mcp?v=1#x"}, {"server_url": f"https://h/{M}"}),
        ({"server_url": "https://h:8/"}, {"server_url": "https://h:8/"}),
        ({"server_url": "https://u:p/a@h"}, {"server_url": M}),
        ({"type": "mcp_server", "url": "https://h/mcp"}, {"type": "mcp_server", "url": f"https://h/{M}"}),
        ({"mcp_servers": [{"url": "https://h/mcp"}]}, {"mcp_servers": [{"url": f"https://h/{M}"}]}),
        ({"sources": [{"url": "https://h/page"}]}, {"sources": [{"url": "https://h/page"}]}),
        (
            {"domain_secrets": [{"domain": "d", "name": "n", "value": "v"}]},
            {"domain_secrets": [{"domain": "d", "name": "n", "value": M}]},
        ),
        ({"env": {"A": "v"}, "environment": {"B": "w"}}, {"env": {"A": M}, "environment": {"B": M}}),
        ({"environment": {"type": "local"}}, {"environment": {"type": "local"}}),
        ({"headers": {"X-A": "v", "n": 1}}, {"headers": {"X-A": M, "n": 1}}),
        (
            {"requestHeaders": {"A": {"b": "v"}}, "env": ["A=v"]},
            {"requestHeaders": {"A": {"b": M}}, "env": [M]},
        ),
        ({"Authorization": {"type": "t", "value": "v"}}, {"Authorization": {"type": "t", "value": M}}),
        (SCHEMA, SCHEMA),
        ({"headers": {"type": "object", "title": "t"}}, {"headers": {"type": "object", "title": "t"}}),
        ({"url": "HTTPS://u:p@h"}, {"url": f"HTTPS://{M}@h"}),
        ({"password": {"type": "string"}}, {"password": {"type": "string"}}),
        ("what is a password?", "what is a password?"),
        ([1, None, True, 1.5], [1, None, True, 1.5]),
    ],
)
def test_fields_that_are_named_for_secrets(value: Any, shown: Any) -> None:
    assert masked_value(value) == shown


@pytest.mark.parametrize("value", [SCHEMA, {"input_schema": SCHEMA["parameters"]}, PROPERTIES["env"]])
def test_words_of_a_schema_are_not_masked_wherever_they_come(value: Any) -> None:
    assert list(hidden_in({"tools": [value]})) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h/v1", "http://h/v1"),
        ("https://a:b@c@h/v1", f"https://{MASK}@h/v1"),
        ("https://h?Signature=1&x=2&%6bey=3&key", f"https://h?Signature={M}&x=2&%6bey={M}&key"),
        ("built in", "built in"),
    ],
)
def test_addresses(url: str, shown: str) -> None:
    assert masked_address(url) == shown


def test_bodies() -> None:
    body = json.dumps({"messages": [{"content": f"my key is {KEY}"}], "user_secret": "s"}).encode()
    shown = masked_body(body, SECRETS)
    assert shown is not None
    assert json.loads(bytes(shown)) == {"messages": [{"content": "my key is [key]"}], "user_secret": MASK}
    assert masked_body(b"not json", SECRETS) is None
    assert masked_body(b"[" * 100_000, SECRETS) is None


def test_spans_that_overlap_are_one() -> None:
    both = Secrets([KEY, KEY + "-and-more-of-it"])
    assert without(f"<{KEY}-and-more-of-it> <{KEY}>", both) == "<[key]> <[key]>"
