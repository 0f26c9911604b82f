"""The inspector's page and what it asks the server: who may read what, and what the lines say."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from openresponses_bridge import ResponseStreamStateMachine, encode_sse
from openresponses_bridge.protocol.usage import Usage, sum_of
from openresponses_server.api.inspector import files, routes
from openresponses_server.settings import Price, PriceTier, Settings
from openresponses_server.settings.files import hashed
from tests.support.costs import assert_at_most, seconds
from tests.support.in_process import InProcess
from tests.support.serving import Reply
from tests.support.shared import REPOSITORY
from tests.support.stores import streamed

PAGE = REPOSITORY / "server/openresponses_server/api/inspector"
CAPTURE = [(b"content-type", b"application/octet-stream")]
ONE, TWO = [(b"authorization", b"Bearer one")], [(b"authorization", b"Bearer two")]
_CHUNK = b'"object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%b}]'
CHAT = b'data: {"id":"c",' + _CHUNK + b"}\n\n"


@pytest.fixture(scope="module")
def app() -> Iterator[InProcess]:
    running = InProcess(Settings(store="memory:", max_body_bytes=300_000))
    yield running
    running.close()


@pytest.fixture(scope="module")
def keyed() -> Iterator[InProcess]:
    running = InProcess(Settings(store="memory:", api_keys=[hashed("one"), hashed("two")]))
    yield running
    running.close()


def lines(reply: Reply) -> list[dict[str, Any]]:
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in reply.body.splitlines() if line]


def findings(observed: list[dict[str, Any]]) -> list[tuple[int, str, str]]:
    return [
        (index, finding["kind"], finding.get("rule") or finding["where"])
        for index, line in enumerate(observed)
        for finding in line.get("findings", ())
    ]


def capture(app: InProcess, data: bytes, query: str = "", headers: Any = ()) -> Reply:
    return app.call("POST", f"/inspector/v1/captures{query}", data, [*CAPTURE, *headers])


# ── the page ───────────────────────────────────────────────────────────────────────────────────────────
def test_the_page_needs_no_key_and_what_it_asks_for_does(keyed: InProcess) -> None:
    for path in ("/inspector", "/inspector/"):
        assert keyed.call("GET", path).headers["location"] == "/inspector/index.html"
    assert keyed.call("GET", "/inspector/index.html").status == 200
    assert keyed.call("GET", "/inspector/v1/responses").status == 401
    assert keyed.call("GET", "/inspector/v1/../v1/responses").status == 401
    assert capture(keyed, CHAT % b"{}").status == 401
    for path in (
        "/inspector/missing.js",
        "/inspector/__init__.py",
        "/inspector/../app.py",
        "/inspector/%2e%2e/app.py",
    ):
        assert keyed.call("GET", path).status == 404


@pytest.mark.parametrize(
    "accept", ["text/html", "text/html,application/xml;q=0.9,*/*;q=0.8", "a/b, TEXT/HTML;q=1"]
)
def test_a_browser_is_led_to_the_page(app: InProcess, keyed: InProcess, accept: str) -> None:
    for served in (app, keyed):
        reply = served.call("GET", "/", b"", [(b"accept", accept.encode())])
        assert (reply.status, reply.headers["location"]) == (307, "/inspector/index.html")
        assert reply.headers["vary"] == "accept"
        assert "content-security-policy" in reply.headers


@pytest.mark.parametrize("accept", [b"", b"*/*", b"application/json", b"text/html-like", b"x-text/html"])
def test_nobody_else_is_led_anywhere(app: InProcess, keyed: InProcess, accept: bytes) -> None:
    for served in (app, keyed):
        reply = served.call("GET", "/", b"", [(b"accept", accept)] if accept else [])
        assert (reply.status, "location" in reply.headers) == (404, False)
        assert reply.json["error"]["message"] == "Not Found: GET /"
        assert served.call("POST", "/", {}).status == 405


def test_the_way_to_the_page_is_guarded_as_the_page_is(app: InProcess) -> None:
    html = (b"accept", b"text/html")
    for header in (
        (b"origin", b"http://evil.example"),
        (b"host", b"evil.example"),
        (b"sec-fetch-site", b"cross-site"),
    ):
        replies = [app.call("GET", path, b"", [html, header]) for path in ("/", "/inspector")]
        assert [reply.status for reply in replies] == [403, 403]
    for path in ("//", "//evil.example", "/index.html", "/inspector/../"):
        assert app.call("GET", path, b"", [html]).status == 404


@pytest.mark.parametrize("name", sorted(files()))
def test_each_file_may_do_nothing_but_show_itself(app: InProcess, name: str) -> None:
    reply = app.call("GET", f"/inspector/{name}")
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    again = app.call("GET", f"/inspector/{name}", b"", [(b"if-none-match", reply.headers["etag"].encode())])
    assert (again.status, again.body) == (304, b"")
    assert "content-security-policy" in again.headers


def test_the_page_has_no_script_within_and_no_address_without() -> None:
    index = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", index) == []
    for name, file in files().items():
        if not name.endswith(".md"):
            text = file.data.decode()
            addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]{2,}[^\s\"'`]*", text))
            assert addresses <= {"http://www.w3.org/2000/svg"} or name.startswith("vendor/"), name
            assert not re.search(
                r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
            ) or name.startswith("vendor/")


def test_every_module_that_is_imported_is_served() -> None:
    served = files()
    for name, file in served.items():
        if name.endswith(".js") and not name.startswith("vendor/"):
            folder = name.rpartition("/")[0]
            for imported in re.findall(r"from '\./([\w./-]+)'", file.data.decode()):
                assert (f"{folder}/{imported}" if folder else imported) in served, (name, imported)


def test_modules_are_small_enough_to_read() -> None:
    sizes = {name: file.data.count(b"\n") for name, file in files().items() if name.endswith((".js", ".css"))}
    assert {name: size for name, size in sizes.items() if size > 300} == {}


def test_the_page_of_another_site_and_another_name_are_refused(app: InProcess) -> None:
    body = {"model": "demo", "input": "Hi"}
    for headers in (
        [(b"origin", b"http://evil.example")],
        [(b"host", b"evil.example")],
        [(b"sec-fetch-site", b"cross-site")],
    ):
        assert app.call("POST", "/inspector/v1/responses", body, headers).status == 403
        assert app.call("GET", "/inspector/v1/responses", b"", headers).status == 403
        assert app.call("GET", "/inspector/index.html", b"", headers).status == 403


# ── streams ────────────────────────────────────────────────────────────────────────────────────────────
def test_a_request_is_observed_as_it_is_answered_and_stored(app: InProcess) -> None:
    observed = lines(
        app.call("POST", "/inspector/v1/responses", {"model": "demo-reasoning", "input": "Hello"})
    )
    names = [line.get("event") for line in observed]
    assert names[0] == "response.created"
    assert names[-2:] == ["response.completed", None]
    assert observed[-1]["ended"]
    assert [line["data"]["sequence_number"] for line in observed[:-1]] == list(range(len(observed) - 1))
    assert all(a["at"] <= b["at"] for a, b in pairwise(observed))
    assert observed[0]["at"] > 0  # they count from the request
    assert findings(observed) == []
    assert "LanguageModelTextPart" in {part["type"] for line in observed for part in line.get("parts", ())}
    response_id = observed[0]["data"]["response"]["id"]
    again = lines(app.call("GET", f"/inspector/v1/responses/{response_id}"))
    assert [line.get("data") for line in again] == [line.get("data") for line in observed]
    rest = lines(app.call("GET", f"/inspector/v1/responses/{response_id}?starting_after=3"))
    assert [line.get("data") for line in rest] == [line.get("data") for line in observed[4:]]
    assert findings(rest) == []
    assert app.call("GET", f"/inspector/v1/responses/{response_id}?starting_after=x").status == 400


def test_s10_events_that_are_left_out_cost_no_more_than_those_that_are_shown() -> None:
    machine = ResponseStreamStateMachine(model="m")
    events = [*machine.start(), *(event for _ in range(10_000) for event in machine.text("word "))]
    stream = encode_sse([*events, *machine.finish("stop")])

    async def pieces() -> AsyncIterator[bytes]:
        yield stream

    async def shown(after: int) -> bytes:
        return b"".join([piece async for piece in routes.observed_frames(pieces(), after)])

    def lines_after(after: int) -> int:
        return asyncio.run(shown(after)).count(b"\n")

    assert lines_after(-1) - lines_after(len(events)) == len(events) + 1
    assert_at_most(
        3, lambda: seconds(lambda: lines_after(len(events))), lambda: seconds(lambda: lines_after(-1))
    )


def test_a_response_in_the_background_is_followed(app: InProcess) -> None:
    body = {"model": "demo", "input": "Hi", "background": True}
    observed = lines(app.call("POST", "/inspector/v1/responses", body))
    assert observed[0]["data"]["response"]["background"] is True
    assert observed[-2]["event"] == "response.completed"


def test_a_refused_request_is_an_error_and_not_a_line(app: InProcess) -> None:
    reply = app.call("POST", "/inspector/v1/responses", {"model": "demo", "input": 3})
    assert reply.status == 400
    assert reply.error["param"] == "input"


def test_what_is_of_another_key_is_not_found(keyed: InProcess) -> None:
    observed = lines(keyed.call("POST", "/inspector/v1/responses", {"model": "demo", "input": "mine"}, ONE))
    response_id = observed[0]["data"]["response"]["id"]
    for path in ("", "/request"):
        assert keyed.call("GET", f"/inspector/v1/responses/{response_id}{path}", b"", TWO).status == 404
        assert keyed.call("GET", f"/inspector/v1/responses/{response_id}{path}", b"", ONE).status == 200
    assert keyed.call("GET", "/inspector/v1/responses", b"", TWO).json["data"] == []
    listed = keyed.call("GET", f"/inspector/v1/responses?conversation={response_id}", b"", TWO).json
    assert listed == {"object": "list", "data": [], "next": None}
    continued = {"model": "demo", "input": "x", "previous_response_id": response_id}
    assert keyed.call("POST", "/inspector/v1/context", continued, TWO).status == 400


def test_s10_a_small_upload_does_not_become_a_large_capture(keyed: InProcess) -> None:
    """Each byte of a capture costs half a microsecond or more, however few were sent."""
    packed = [(b"content-encoding", b"gzip"), *ONE]
    refused = capture(keyed, gzip.compress(CHAT % b'{"content":"x"}' * 200_000), "", packed)
    assert refused.status == 413
    assert "without compression" in json.loads(refused.body)["error"]["message"]
    # one that is packed as usual
    words = b"".join(CHAT % b'{"content":"%d"}' % (n * n) for n in range(20_000))
    assert len(words) > 2_100_000
    assert capture(keyed, gzip.compress(words), "", packed).status == 200


# ── captures ───────────────────────────────────────────────────────────────────────────────────────────
def test_a_violation_is_pinned_to_its_event_with_the_rule(app: InProcess) -> None:
    data = streamed("Hi", 3)[1].data.replace(b'"sequence_number":3', b'"sequence_number":9')
    observed = lines(capture(app, data))
    assert {(index, kind) for index, kind, _ in findings(observed)} == {(3, "violation"), (4, "violation")}
    (finding, *_) = observed[3]["findings"]
    assert finding["rule"] in (REPOSITORY / "docs/rules.md").read_text()
    assert finding["asks"] in (REPOSITORY / "docs/rules.md").read_text()
    assert observed[3]["line"] == 11


def test_a_stream_that_is_cut_says_so_at_its_end(app: InProcess) -> None:
    data = streamed("Hi", 3)[1].data
    observed = lines(capture(app, data[: data.index(b"event: response.completed")]))
    assert observed[-1]["ended"]
    assert [kind for _, kind, _ in findings(observed[-1:])][:1] == ["violation"]


def test_another_dialect_is_shown_as_events_with_what_they_are_made_of(app: InProcess) -> None:
    data = (
        CHAT % b'{"content":"Hi"}'
        + CHAT % b'{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}'
        + b"data: [DONE]\n\n"
    )
    observed = lines(capture(app, data))
    assert observed[0]["event"] == "response.created"
    assert observed[0]["source"][0]["choices"][0]["delta"] == {"content": "Hi"}
    assert {"repair", "loss", "warning", "violation"} & {kind for _, kind, _ in findings(observed)}
    assert lines(capture(app, data, "?dialect=chat")) == observed


def test_several_responses_in_one_capture_are_judged_one_by_one(app: InProcess) -> None:
    observed = lines(capture(app, streamed("a")[1].data + streamed("b")[1].data))
    assert [
        line["event"] for line in observed if line.get("event") in ("response.created", "response.completed")
    ] == [
        "response.created",
        "response.completed",
    ] * 2
    assert findings(observed) == []


@pytest.mark.parametrize(
    ("data", "query", "status"),
    [
        (b"", "", 400),
        (b"rubbish", "", 400),
        (b"\xff\xfe\x00", "", 400),
        (b'{"a":1}', "", 400),
        (b"[" * 200_000, "", 400),
        (b'data: {"type":"response.created","response":' + b'{"a":' * 50_000, "", 400),
        (b"x" * 300_001, "", 413),
        (b"{}", "?dialect=latin", 400),
    ],
)
def test_a_capture_that_can_t_be_read_is_refused(
    app: InProcess, data: bytes, query: str, status: int
) -> None:
    reply = capture(app, data, query)
    assert reply.status == status
    assert reply.error["message"]


def test_a_capture_that_ends_in_rubbish_says_where(app: InProcess) -> None:
    *_, last = lines(capture(app, streamed("Hi")[1].data + b"event: x\ndata: {\n\n"))
    assert "line" in last["error"]


@pytest.mark.parametrize("data", [b":\n\n" * 90_000, CHAT % b'{"content":"a"}' + b":\n\n" * 90_000])
def test_a_capture_of_comments_is_read_in_pieces_while_its_client_waits(
    app: InProcess, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = list[bool]()
    piece = routes._next_chunk

    def counted(lines: Iterator[bytes]) -> tuple[bytes, bool]:
        chunk = piece(lines)
        flags.append(chunk[1])
        return chunk

    monkeypatch.setattr(routes, "_next_chunk", counted)
    assert capture(app, data).status == (200 if b"data" in data else 400)
    assert len(flags) > 40
    flags.clear()
    app.call("POST", "/inspector/v1/captures", data, CAPTURE, leaves=True)
    assert len(flags) <= 2


def test_a_payload_is_bounded_in_values(app: InProcess) -> None:
    reply = capture(app, CHAT % b'{"content":"a"}' + b"data: [" + b"1," * 60_000 + b"1]\n\n")
    assert "more values than the limit of 50000" in lines(reply)[-1]["error"]


def test_a_capture_has_its_own_content_type(app: InProcess) -> None:
    assert app.call("POST", "/inspector/v1/captures", b"x", [(b"content-type", b"text/plain")]).status == 415


def test_hostile_events_are_lines_all_the_same(app: InProcess) -> None:
    odd = "</script><img src=x onerror=alert(1)>\u202e\u2066"
    values: list[Any] = [
        odd,
        3,
        None,
        [],
        {"type": odd},
        {"type": "response.created", "response": 7},
        {"type": "a:b", "x": "\ud800"},
    ]
    data = b"".join(
        b"data: " + json.dumps(value).encode() + b"\n\n" for value in values if isinstance(value, dict)
    )
    observed = lines(capture(app, streamed("a")[1].data[:900].rpartition(b"\n\n")[0] + b"\n\n" + data))
    assert [line["event"] for line in observed if odd in str(line.get("event"))] == [odd]
    assert observed[-1]["ended"]


# ── lists and contexts ─────────────────────────────────────────────────────────────────────────────────
def test_stored_responses_are_listed_with_their_requests(app: InProcess) -> None:
    first = app.call("POST", "/v1/responses", {"model": "demo", "input": "About Ganges"}).json
    then = {
        "model": "demo",
        "input": "And Nile?",
        "previous_response_id": first["id"],
        "metadata": {"a": "b"},
    }
    second = app.call("POST", "/v1/responses", then).json
    listed = app.call("GET", "/inspector/v1/responses?search=ganges&status=completed&model=demo").json
    (row,) = listed["data"]
    assert (row["id"], row["asked"], row["model"], listed["next"]) == (
        first["id"],
        "About Ganges",
        "demo",
        None,
    )
    turns = app.call("GET", f"/inspector/v1/responses?conversation={second['id']}").json["data"]
    assert [turn["id"] for turn in turns] == [second["id"], first["id"]]
    request = app.call("GET", f"/inspector/v1/responses/{second['id']}/request").json
    assert (request["model"], request["metadata"]) == ("demo", {"a": "b"})
    assert request["previous_response_id"] == first["id"]
    assert "And Nile?" in json.dumps(request["input"])
    assert app.call("POST", "/inspector/v1/context", request).json["tokens"] > 4
    page = app.call("GET", "/inspector/v1/responses?limit=1").json
    assert page["next"] == page["data"][0]["id"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "since=x", "until=-1", f"search={'x' * 201}"]
)
def test_filters_that_are_none_are_refused(app: InProcess, query: str) -> None:
    reply = app.call("GET", f"/inspector/v1/responses?{query}")
    assert reply.status == 400
    assert reply.error["param"] == query.partition("=")[0]


def test_a_context_is_measured_piece_by_piece(app: InProcess) -> None:
    first = app.call("POST", "/v1/responses", {"model": "demo", "input": "word " * 200}).json
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    body = {
        "model": "demo",
        "input": "short",
        "instructions": "Be kind.",
        "tools": [tool],
        "previous_response_id": first["id"],
    }
    context = app.call("POST", "/inspector/v1/context", body).json
    kinds = [(entry["from"], entry["kind"]) for entry in context["entries"]]
    assert kinds[:2] == [("", "instructions"), ("", "tool")]
    assert [place for place, _ in kinds[2:]] == ["earlier", "earlier", ""]
    assert context["tokens"] == sum(entry["tokens"] for entry in context["entries"])
    largest = max(context["entries"], key=lambda entry: entry["tokens"])
    assert "word word" in largest["label"]
    assert largest["tokens"] >= 190
    assert largest["bytes"] > 1000


def recording(*answers: tuple[int, str], **more: Any) -> bytes:
    entries: list[dict[str, Any]] = [{"type": "recording", "version": 1}]
    for number, (status, text) in enumerate(answers):
        at = 10 + number
        entries += [
            {"type": "exchange", "exchange": number, "at": at, "dialect": "chat"} | more,
            {"type": "answer", "exchange": number, "at": at, "status": status},
            {"type": "chunk", "exchange": number, "at": at + 0.5, "text": text},
            {"type": "end", "exchange": number, "at": at + 0.6, "how": "finished"},
        ]
    return b"".join(json.dumps(each).encode() + b"\n" for each in entries)


def test_a_recording_is_shown_with_its_times_and_refusals(app: InProcess) -> None:
    text = (CHAT % b'{"content":"Hi"}' + b"data: [DONE]\n\n").decode()
    observed = lines(capture(app, recording((429, "busy"), (200, text))))
    assert (observed[0]["event"], observed[0]["data"]) == ("refused", "busy")
    assert findings(observed)[0] == (0, "warning", "exchange 0")
    assert observed[2]["event"] == "response.created"
    assert observed[2]["at"] == 1.5  # since the first request
    assert observed[-1]["ended"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (recording(), "no exchanges"),
        (recording((200, "data: {}"), dialect="klingon"), "line 2: dialect 'klingon'"),
        (recording((200, "nonsense")), "line 2: the answer of exchange 0 can't be read: line 1"),
        (recording((200, "x")) + b"{", "line 6"),
    ],
)
def test_a_recording_that_cannot_be_read_names_the_line(app: InProcess, data: bytes, said: str) -> None:
    reply = capture(app, data)
    assert reply.status == 400
    assert said in reply.json["error"]["message"]


# ── costs ──────────────────────────────────────────────────────────────────────────────────────────────
USAGE = {
    "input_tokens": 300,
    "output_tokens": 20,
    "total_tokens": 320,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
ROUND = {
    "input_tokens": 150,
    "output_tokens": 10,
    "cached_tokens": 0,
    "reasoning_tokens": 0,
    "total_tokens": 160,
    "cache_write_tokens": 0,
}
ROUNDS = "openresponses-bridge:rounds"


@pytest.fixture(scope="module")
def priced() -> Iterator[InProcess]:
    tier = PriceTier(above=200, input=2.0, output=20.0)
    settings = Settings(store="memory:", prices={"demo": Price(input=1.0, output=10.0, tiers=(tier,))})
    running = InProcess(settings)
    yield running
    running.close()


def cost_of(app: InProcess, **usage: Any) -> Any:
    reply = app.call("POST", "/inspector/v1/cost", {"model": "demo", "usage": {**USAGE, **usage}})
    assert reply.status == 200, reply.body
    cost = reply.json
    assert cost.pop("object") == "cost"
    return cost


def test_the_cost_of_a_usage_is_that_of_its_rounds(priced: InProcess) -> None:
    assert cost_of(priced) == {"cost_usd": "0.001", "rounds": []}
    cost = cost_of(priced, **{ROUNDS: [ROUND, {**ROUND, "estimated": True}]})
    assert cost == {"cost_usd": "0.0005", "rounds": ["0.00025", "0.00025"]}


def test_s10_the_costs_of_many_rounds_are_summed_beside_the_loop(
    priced: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed: list[int] = []

    def summed_beside(rounds: Sequence[Usage]) -> Usage:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        summed.append(len(rounds))
        return sum_of(rounds)

    monkeypatch.setattr(routes, "sum_of", summed_beside)
    assert cost_of(priced, **{ROUNDS: [ROUND] * 3})["cost_usd"] == "0.00075"
    assert summed == [3]


def test_a_cost_that_is_not_known_is_null(app: InProcess, priced: InProcess) -> None:
    unknown = {"cost_usd": None, "rounds": []}
    assert cost_of(app) == unknown
    for model in ("nobody", "", "demo-2"):
        reply = priced.call("POST", "/inspector/v1/cost", {"model": model, "usage": USAGE})
        assert (reply.status, reply.json) == (200, {"object": "cost", **unknown})


@pytest.mark.parametrize("number", [-1, -(2**63), 2**63 - 1])
def test_counts_that_can_not_be_ones_are_taken_as_the_nearest(priced: InProcess, number: int) -> None:
    ones = dict.fromkeys(ROUND, number)
    most = "0" if number < 0 else "22000000"
    cost = cost_of(priced, input_tokens=number, output_tokens=number, total_tokens=0)
    assert cost == {"cost_usd": most, "rounds": []}
    assert cost_of(priced, **{ROUNDS: [ones]})["cost_usd"] == "0.001"  # they are at least two
    assert cost_of(priced, **{ROUNDS: [ones, ones]})["rounds"] == [most, most]


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"model":"demo"}',
        b'{"model":7,"usage":{}}',
        b'{"model":"demo","usage":{"input_tokens":1e400}}',
        b'{"model":"demo","usage":NaN}',
        b"[" * 100_000,
        json.dumps({"model": "demo", "usage": USAGE | {"input_tokens": "1"}}).encode(),
        json.dumps({"model": "demo", "usage": USAGE | {ROUNDS: [{}]}}).encode(),
    ],
)
def test_what_is_no_usage_is_a_400(priced: InProcess, body: bytes) -> None:
    assert priced.call("POST", "/inspector/v1/cost", body).status == 400


def test_a_cost_needs_a_key_where_the_server_does(keyed: InProcess) -> None:
    assert keyed.call("POST", "/inspector/v1/cost", {"model": "demo", "usage": USAGE}).status == 401
    assert keyed.call("POST", "/inspector/v1/cost", {"model": "demo", "usage": USAGE}, ONE).status == 200
