"""What each key may spend in a day."""

import asyncio
import http.client
import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import redis
from structlog.testing import capture_logs

from openresponses_server.errors import HttpError
from openresponses_server.limits.money import MoneyBudget
from openresponses_server.limits.owners import KeyLimits, OwnerLimits
from openresponses_server.limits.redis_counts import SharedCounts
from openresponses_server.requests.forwarding import ImageCounter
from openresponses_server.settings import Limits, Price, Settings, SettingsError, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.upstreams.catalog import FiledModel, written_models
from openresponses_server.upstreams.prices import Prices
from tests.support.clocks import Clock
from tests.support.quotas import ONE, SURFACES, TWO, used
from tests.support.services import OwnRedis, own_redis
from tests.support.serving import Reply, call, opened, respond, serving
from tests.support.shared_counts import joined
from tests.support.upstream import DONE, HANG, JSON, Script, ScriptedUpstream, chunk, text
from tests.support.upstream import refusal as refusal_of
from tests.support.waiting import eventually

PRICES = Prices({"m": Price(input=1.0, output=3.0)})


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


class Target(NamedTuple):
    model: str = "m"
    fallbacks: "tuple[Target, ...]" = ()


M = Target()


async def refused(
    budget: MoneyBudget, owner: str = "k", model: str = "m", target: Target = M
) -> HttpError | None:
    try:
        await budget.accept(owner, model, target)
    except HttpError as error:
        return error
    return None


async def test_a_day_ends_at_midnight_and_each_key_has_its_own() -> None:
    clock = Clock()
    clock.now = 20_000 * 86_400 + 86_400 - 90.5
    budget = MoneyBudget(0.3, PRICES, clock=clock)
    for _ in range(3):  # whose sum as floats is not 0.3
        assert await refused(budget) is None
        budget.pay("k", 10**11)
    error = await refused(budget)
    assert error is not None
    assert (error.http_status, error.code, error.headers["retry-after"]) == (429, "budget_exceeded", "91")
    assert "0.3 US dollars a day" in error.message
    assert await refused(budget, "another") is None
    clock.now += 91
    assert await refused(budget) is None


async def test_one_unit_less_than_the_budget_is_not_the_budget() -> None:
    budget = MoneyBudget(1.0, PRICES, clock=Clock())
    for cost, over in ((10**12 - 1, False), (1, True)):
        budget.pay("k", cost)
        assert (await refused(budget) is not None) == over


async def test_a_cost_is_bounded_and_never_gives_money_back() -> None:
    budget = MoneyBudget(1.0, PRICES, clock=(clock := Clock()))
    budget.pay("k", -(10**12))
    budget.pay("k", 10**12 - 1)
    assert await refused(budget) is None
    budget.pay("much", 2**80)
    assert budget._spent.at(clock.now)["much"] == 10**18


async def test_an_owner_has_its_own_budget_and_what_it_spent_before_counts() -> None:
    owners = OwnerLimits()
    for general, before in ((1.0, True), (None, False)):
        owners.manage("k", None)
        budget = MoneyBudget(general, PRICES, owners=owners)
        budget.pay("k", 2 * 10**12)
        assert (await refused(budget) is not None) == before
        for own, over in ((2.0, True), (2.5, False), (0.01, True), (3, False)):
            owners.manage("k", KeyLimits(usd_per_day=own))
            error = await refused(budget)
            assert (error is not None) == over
            assert error is None or f"{own} US dollars a day".replace("2.0", "2") in error.message
        assert await refused(budget, "another") is None


async def test_a_key_with_a_budget_is_refused_where_nothing_has_a_price() -> None:
    owners = OwnerLimits()
    owners.manage("k", KeyLimits(usd_per_day=1.0))
    budget = MoneyBudget(None, None, owners=owners)
    error = await refused(budget)
    assert error is not None
    assert (error.http_status, error.code) == (400, "model_without_price")
    assert await refused(budget, "another") is None


async def test_a_model_that_may_be_another_one_upstream_needs_the_price_of_each() -> None:
    budget = MoneyBudget(1.0, Prices({}, {"u": Price(input=1.0, output=1.0)}))
    assert await refused(budget, target=Target("u")) is None
    assert await refused(budget, target=Target("u", (Target("v"),))) is not None
    assert await refused(budget, target=Target("m")) is not None


@pytest.mark.parametrize("dollars", [0.0, 1e-13, math.nan, math.inf])
def test_a_budget_is_a_number_of_dollars(dollars: float) -> None:
    with pytest.raises(SettingsError, match="must be a number of dollars"):
        MoneyBudget(dollars, PRICES)


async def test_workers_spend_the_budget_of_a_key_together(server: OwnRedis) -> None:
    async with AsyncExitStack() as stack:
        one, other = [
            MoneyBudget(1e6, PRICES, await joined(stack, server.url, "paid"), clock=Clock()) for _ in "ab"
        ]
        one.pay("k", 10**18 - 10**6)
        client = redis.Redis.from_url(server.url)

        async def sent() -> bool:
            return client.keys("paid:usd:*:k") != []

        await eventually(sent)
        (key,) = client.keys("paid:usd:*:k")
        assert client.get(key) == str((10**12 - 1) * 10**6).encode()  # a float would round it
        assert 0 < client.pttl(key) <= 2 * 86_400_000
        assert await refused(other) is None
        one.pay("k", 10**6)

        async def over() -> bool:
            return await refused(other) is not None

        await eventually(over)
        for _ in range(20):  # those in progress
            one.pay("k", 2**60)
            await asyncio.sleep(0)
            await one._others._send()  # type: ignore[union-attr]
        assert 4 * 10**18 <= int(client.get(key)) < 2**63
        assert not one._others.redis.alone  # type: ignore[union-attr]


async def test_costs_that_are_sent_together_fit_as_each_does(server: OwnRedis) -> None:
    async with AsyncExitStack() as stack:
        shared = await joined(stack, server.url, "much")
        budget = MoneyBudget(1e6, PRICES, shared, clock=Clock())
        for _ in range(20):
            budget.pay("k", 10**18)
        await shared._send()
        budget.pay("k", 10**18)
        await shared._send()
        assert not shared.redis.alone
        client = redis.Redis.from_url(server.url)
        (key,) = client.keys("much:usd:*:k")
        assert 10**18 <= int(client.get(key)) < 2**63


async def test_what_was_spent_while_redis_did_not_answer_is_counted_afterwards(server: OwnRedis) -> None:
    async with AsyncExitStack() as stack:
        shared: list[SharedCounts] = [await joined(stack, server.url, "late") for _ in "ab"]
        one, other = [MoneyBudget(1.0, PRICES, each, clock=Clock()) for each in shared]
        shared[0].redis.alone = True
        server.freeze()
        one.pay("k", 6 * 10**11)
        await shared[0]._send()
        assert await refused(one) is None
        one.pay("k", 4 * 10**11)
        assert await refused(one) is not None
        server.thaw()

        async def over() -> bool:
            return await refused(other) is not None

        await eventually(over)


@contextmanager
def budgeted(
    upstream: ScriptedUpstream, dollars: float, *, keys: bool = True, **prices: Price
) -> Iterator[str]:
    options: dict[str, Any] = {"api_keys": [hashed(name) for name in ("one", "two")]} if keys else {}
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        limits=Limits(usd_per_day_per_key=dollars),
        prices={"m": Price(input=1.0, output=3.0), **prices},
        forwarding=["audio", "embeddings", "images", "moderations", "rerank"],
        **options,
    )
    with serving(settings) as base:
        yield base


@pytest.mark.parametrize("path", SURFACES)
def test_every_surface_refuses_who_has_spent_the_budget(upstream: ScriptedUpstream, path: str) -> None:
    upstream.scripts["m"] = used(1_000_000, 1_000_000)
    with budgeted(upstream, 4.0) as base:
        assert call(base, "POST", path, {"model": "m", **SURFACES[path]}, ONE).status == 200
        reply = call(base, "POST", path, {"model": "m", **SURFACES[path]}, ONE)
        assert reply.status == 429
        assert "4 US dollars a day" in reply.error["message"]
        assert 1 <= int(reply.headers["retry-after"]) <= 86_400
        assert reply.headers["x-should-retry"] == "false"
        assert call(base, "POST", path, {"model": "m", **SURFACES[path]}, TWO).status == 200
        assert call(base, "POST", "/v1/embeddings", {"model": "m", "input": "x"}, ONE).status == 429
        metrics = call(base, "GET", "/metrics", None, ONE).body.decode()
        assert 'limit="usd"} 2.0' in metrics


def test_a_model_without_a_price_is_refused_before_it_is_asked(upstream: ScriptedUpstream) -> None:
    with budgeted(upstream, 1.0) as base:
        reply = respond(base, ONE, model="other")
        assert (reply.status, reply.error["code"], reply.error["param"]) == (
            400,
            "model_without_price",
            "model",
        )
        assert "no price in [prices] with `input` and `output`" in reply.error["message"]
        assert call(base, "POST", "/v1/embeddings", {"model": "other", "input": "x"}, ONE).status == 400
        assert upstream.received == []


APART: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "a tier": ("/v1/responses", {"service_tier": "priority"}, "service_tier"),
    "a tier of Chat Completions": ("/v1/chat/completions", {"service_tier": "priority"}, "service_tier"),
    "the usual tier": ("/v1/responses", {"service_tier": "default"}, None),
    "a lower tier": ("/v1/responses", {"service_tier": "flex"}, None),
    "a speed": ("/v1/messages", {"speed": "fast"}, "speed"),
    "the usual speed": ("/v1/messages", {"speed": "standard"}, None),
    "a place": ("/v1/messages", {"inference_geo": "us"}, "inference_geo"),
    "a speed that is no text": ("/v1/messages", {"speed": ["fast"]}, "speed"),
    "other models": ("/v1/chat/completions", {"models": ["n"]}, "models"),
    "fields within a field": ("/v1/chat/completions", {"extra_body": {"service_tier": "x"}}, "extra_body"),
    "a priority": ("/v1/chat/completions", {"priority": 1}, "priority"),
    "no priority": ("/v1/chat/completions", {"priority": None}, None),
    "a tier of completions": ("/v1/completions", {"service_tier": "priority"}, "service_tier"),
    "the usual tier of completions": ("/v1/completions", {"service_tier": "default"}, None),
    "a speed of completions": ("/v1/completions", {"speed": "fast"}, "speed"),
    "a priority of completions": ("/v1/completions", {"priority": 10}, "priority"),
    "a long value": ("/v1/completions", {"speed": "x" * 100}, "speed"),
}


@pytest.mark.parametrize("case", APART)
def test_what_has_another_price_is_refused_before_it_is_asked(upstream: ScriptedUpstream, case: str) -> None:
    path, fields, refused = APART[case]
    upstream.scripts["m"] = Script(text("Hi"))
    dialect: Any = "anthropic" if path == "/v1/messages" else "chat"
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, dialect=dialect)],
        limits=Limits(usd_per_day_per_key=1.0),
        prices={"m": Price(input=1.0, output=3.0)},
        api_keys=[hashed("one")],
        forwarding=["completions"],
    )
    before = len(upstream.received)
    with serving(settings) as base:
        reply = call(base, "POST", path, {"model": "m", **SURFACES.get(path, {"prompt": "x"}), **fields}, ONE)
        assert (reply.status == 400) == (refused is not None)
        assert refused is None or refused in reply.error["message"]
        assert (len(upstream.received) == before) == (refused is not None)


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [("user", b"1e400", 200), ("speed", b"1e400", 400), ("speed", b'"\xff"', 400)],
)
def test_a_value_that_servers_read_differently_is_no_usual_one(
    upstream: ScriptedUpstream, field: str, value: bytes, status: int
) -> None:
    upstream.scripts["m"] = used(1, 1)
    body = b'{"model":"m","input":"x","%b":%b}' % (field.encode(), value)
    with budgeted(upstream, 1.0) as base:
        assert call(base, "POST", "/v1/embeddings", body, ONE).status == status


def test_what_its_upstream_is_not_sent_has_no_other_price(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = used(1, 1)
    with budgeted(upstream, 1.0) as base:
        body = {"model": "m", "speed": "fast", **SURFACES["/v1/messages"]}
        assert call(base, "POST", "/v1/messages", body, ONE).status == 200


def test_an_answer_without_usage_costs_what_is_estimated_and_a_refusal_nothing(
    upstream: ScriptedUpstream,
) -> None:
    with budgeted(upstream, 1e-6) as base:
        upstream.scripts["m"] = refusal_of(400, message="No.")
        assert [respond(base, ONE, model="m").status for _ in range(2)] == [400] * 2
        upstream.scripts["m"] = Script([chunk(content="word " * 50)])  # and no end
        assert respond(base, ONE, model="m").status != 429
        assert respond(base, ONE, model="m").status == 429


def test_without_keys_no_budget_is_counted(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = used(1_000_000, 1_000_000)
    with budgeted(upstream, 1.0, keys=False) as base:
        assert [respond(base, model="m").status for _ in range(2)] == [200] * 2


def test_a_budget_needs_prices() -> None:
    limits = Limits(usd_per_day_per_key=1.0)
    with pytest.raises(SettingsError, match="prices"), serving(Settings(limits=limits)):
        pass


IMAGES = "/v1/images/generations"
DRAWN: dict[str, Any] = {"created": 1, "data": [{"b64_json": "aGk="}, {"b64_json": "aGk=", "url": None}]}
TOKENS = {"input_tokens": 100, "output_tokens": 1000, "total_tokens": 1100}
FORM = {"content-type": "multipart/form-data; boundary=b"}
PRICED = {
    "tokens": Price(input=10.0, output=40.0),
    "image": Price(per_image=0.04),
    "both": Price(input=10.0, output=40.0, per_image=0.04),
    "fee": Price(per_request=0.006),
    "free": Price(per_request=0.0),
    "speech": Price(per_character=0.000015),
    "sound": Price(per_second=0.0001, unreported_seconds=7200),
    "short sound": Price(per_second=0.0001),
}
FORWARDED: dict[str, tuple[str, dict[str, Any], Any, str]] = {
    # name of the model → path, body, answer, cost
    "embeddings by their tokens": ("/v1/embeddings", {"input": "x"}, {"usage": TOKENS}, "0.041"),
    "embeddings by an estimate": ("/v1/embeddings", {"input": "x" * 4000}, {"data": []}, "0.01008"),
    "embeddings that count nothing": (
        "/v1/embeddings",
        {"input": "x" * 4000},
        {"usage": {"prompt_tokens": 0, "total_tokens": 0}},
        "0.01008",
    ),
    "rerank by its tokens": ("/v1/rerank", {"query": "x"}, {"meta": {"tokens": TOKENS}}, "0.041"),
}


def answered(upstream: ScriptedUpstream, path: str, value: Any) -> None:
    data = value if isinstance(value, list) else [json.dumps(value).encode()]
    upstream.pages[path.replace("/v2", "/v1")] = Script(data, 200, JSON)


def cost_at(base: str) -> Any:
    return call(base, "GET", "/v1/usage", None, ONE).json["cost_usd"]


@pytest.mark.parametrize("case", FORWARDED)
def test_forwarded_requests_are_paid_by_their_tokens(upstream: ScriptedUpstream, case: str) -> None:
    path, body, reply, cost = FORWARDED[case]
    answered(upstream, path, reply)
    with capture_logs() as lines, budgeted(upstream, float(cost), **PRICED) as base:
        assert call(base, "POST", path, {"model": "tokens", **body}, ONE).status == 200
        assert cost_at(base) == cost
        assert call(base, "POST", path, {"model": "tokens", **body}, ONE).status == 429
        assert call(base, "POST", path, {"model": "tokens", **body}, TWO).status == 200
    assert next(line for line in lines if line["event"] == "response")["cost_usd"] == cost


@pytest.mark.parametrize(
    ("model", "answer", "cost"),
    [
        ("image", DRAWN, "0.08"),
        ("image", {"data": [{"url": "http://a/1"}, {"url": "http://a/2"}, {"url": "http://a/3"}]}, "0.12"),
        ("image", {"data": []}, "0.04"),
        ("image", DRAWN | {"usage": TOKENS}, "0.08"),
        ("both", DRAWN | {"usage": TOKENS}, "0.041"),
        ("both", DRAWN, "0.08"),
        ("fee", DRAWN, "0.006"),
    ],
)
def test_images_are_paid_by_their_tokens_else_each(
    upstream: ScriptedUpstream, model: str, answer: Any, cost: str
) -> None:
    answered(upstream, IMAGES, answer)
    with budgeted(upstream, float(cost), **PRICED) as base:
        body = {"model": model, "prompt": "x", "n": 1}  # whatever it says that it asks for
        assert call(base, "POST", IMAGES, body, ONE).status == 200
        assert cost_at(base) == cost
        assert call(base, "POST", IMAGES, body, ONE).status == 429


def form(**fields: str | bytes) -> bytes:
    """A form with these fields in this order, in which bytes are a file."""
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
        % (
            name.encode(),
            b'; filename="a"' * isinstance(value, bytes),
            value if isinstance(value, bytes) else value.encode(),
        )
        for name, value in fields.items()
    ]
    return b"".join(parts) + b"--b--\r\n"


def cost_after_leaving(base: str, path: str, body: Any, headers: dict[str, str]) -> Any:
    """What the request has cost of which the client reads the beginning of the answer alone."""
    with opened(base, "POST", path, body, headers) as reply:
        assert reply.read(5)
    while call(base, "GET", "/v1/usage", None, ONE).json["data"] == []:
        time.sleep(0.02)
    return cost_at(base)


EDITS = "/v1/images/edits"
PICTURE = b"x" * 600_000


@pytest.mark.parametrize(
    ("path", "body", "cost"),
    [
        (IMAGES, {"n": 10}, "0.4"),
        (IMAGES, {"n": "10"}, "0.4"),
        (IMAGES, {"n": 10**9}, "40"),
        (IMAGES, {"n": "0" * 40 + "3"}, "40"),
        (IMAGES, {"n": [3]}, "0.04"),
        (IMAGES, {"n": -3}, "0.04"),
        (IMAGES, {}, "0.04"),
        (EDITS, form(model="image", image=b"x", n="3"), "0.12"),
        (EDITS, form(model="image", n="3", image=PICTURE), "0.12"),
        (EDITS, form(model="image", image=PICTURE, n="3"), "0.12"),
        (EDITS, form(model="image", image=PICTURE, n="nan"), "0.04"),
        (EDITS, form(model="image", image=PICTURE, n=b"3"), "0.04"),
        (EDITS, form(model="image", image=PICTURE), "0.04"),
    ],
)
def test_a_client_that_leaves_pays_the_images_that_it_asked_for(
    upstream: ScriptedUpstream, path: str, body: Any, cost: str
) -> None:
    upstream.pages[path] = Script([b'{"data":[{"b64_json":"', HANG], 200, JSON)
    payload = body if isinstance(body, bytes) else {"model": "image", "prompt": "x", **body}
    headers = {**ONE, **(FORM if isinstance(body, bytes) else {})}
    with budgeted(upstream, float(cost), **PRICED) as base:
        assert cost_after_leaving(base, path, payload, headers) == cost
        assert call(base, "POST", path, payload, headers).status == 429


def test_what_waited_is_not_made_when_the_budget_is_spent_meanwhile(upstream: ScriptedUpstream) -> None:
    may_answer = threading.Event()
    upstream.scripts["m"] = Script([may_answer.is_set, *used(1_000_000, 1_000_000).steps])
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        limits=Limits(usd_per_day_per_key=4.0, concurrent_per_key=1),
        prices={"m": Price(input=1.0, output=3.0)},
        api_keys=[hashed("one")],
    )
    before = len(upstream.received)
    with serving(settings) as base:
        asked = [respond(base, ONE, model="m", background=True).json["id"] for _ in range(3)]
        may_answer.set()
        while True:
            responses = [call(base, "GET", f"/v1/responses/{each}", None, ONE).json for each in asked]
            if all(each["status"] not in ("queued", "in_progress") for each in responses):
                break
            time.sleep(0.02)
        assert sorted(each["status"] for each in responses) == ["completed", "failed", "failed"]
        assert {each["error"]["code"] for each in responses if each["error"]} == {"budget_exceeded"}
    assert len(upstream.received) == before + 1


UNANSWERED = {"no status yet": Script(before=HANG), "a status alone": Script([HANG])}
ASKED: dict[str, dict[str, Any]] = {
    **SURFACES,
    "/v1/responses": {"input": "x", "store": False},
    "/v1/responses/compact": {"input": [{"role": "user", "content": "x"}]},
    "/v1/embeddings": {"input": "x" * 4000},
    IMAGES: {"prompt": "x", "n": 10},
}


@contextmanager
def asked(base: str, upstream: ScriptedUpstream, path: str, body: dict[str, Any]) -> Iterator[None]:
    """A client that waits for an answer which the upstream has been asked for."""
    before = len(upstream.received)
    with closing(http.client.HTTPConnection(urlsplit(base).netloc)) as connection:
        sent = json.dumps({"model": "m", **body}).encode()
        connection.request("POST", path, sent, {**ONE, "content-type": "application/json"})
        while len(upstream.received) == before:
            time.sleep(0.02)
        yield


@pytest.mark.parametrize("script", UNANSWERED)
@pytest.mark.parametrize("path", ASKED)
def test_a_client_that_leaves_before_the_answer_has_begun_pays_what_it_asked_for(
    upstream: ScriptedUpstream, path: str, script: str
) -> None:
    if path in (IMAGES, "/v1/embeddings"):
        upstream.pages[path] = UNANSWERED[script]
    else:
        upstream.scripts["m"] = UNANSWERED[script]
    with budgeted(upstream, 1e-6, m=Price(input=1.0, output=3.0, per_image=0.04)) as base:
        with asked(base, upstream, path, ASKED[path]):
            pass
        while call(base, "GET", "/v1/usage", None, ONE).json["data"] == []:
            time.sleep(0.02)
        cost = float(cost_at(base))
        assert cost == 0.4 if path == IMAGES else cost > 1e-6
        assert respond(base, ONE, model="m").status == 429


@pytest.mark.parametrize("script", UNANSWERED)
def test_a_response_that_is_cancelled_before_the_answer_has_begun_is_paid(
    upstream: ScriptedUpstream, script: str
) -> None:
    upstream.scripts["m"] = UNANSWERED[script]
    with budgeted(upstream, 1e-6) as base:
        begun = respond(base, ONE, model="m", background=True).json["id"]
        while not upstream.received:
            time.sleep(0.02)
        assert call(base, "POST", f"/v1/responses/{begun}/cancel", None, ONE).status == 200
        assert respond(base, ONE, model="m").status == 429


def test_what_no_upstream_was_asked_costs_nothing(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(before=HANG)
    limits = Limits(usd_per_day_per_key=1e-6, concurrent_per_key=1)
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        limits=limits,
        prices={"m": Price(input=1.0, output=3.0)},
        api_keys=[hashed("one")],
    )
    with serving(settings) as base, asked(base, upstream, "/v1/responses", {"input": "x"}):
        queued = respond(base, ONE, model="m", background=True).json["id"]
        assert call(base, "POST", f"/v1/responses/{queued}/cancel", None, ONE).status == 200
        assert cost_at(base) == "0"


SPEECH = "/v1/audio/speech"


@pytest.mark.parametrize(
    ("body", "cost"),
    [
        (b'{"model":"speech","input":"na\\u00efve \xf0\x9f\x99\x82"}', 7),
        (b'{"model":"speech","input":"a","input":"bcd"}', 3),
        (b'{"model":"speech","input":""}', 0),
        # whatever a server makes of these, it can't be more
        (b'{"model":"speech","input":["a","bcd"]}', 38),
        (b'{"model":"speech","text":"a"}', 29),
    ],
)
def test_speech_is_paid_by_its_characters(upstream: ScriptedUpstream, body: bytes, cost: int) -> None:
    upstream.pages[SPEECH] = Script([b"ID3", b"sound"], 200, {"content-type": "audio/mpeg"})
    with budgeted(upstream, 1.0, **PRICED) as base:
        assert call(base, "POST", SPEECH, body, {**ONE, "content-type": JSON["content-type"]}).status == 200
        assert float(cost_at(base)) == pytest.approx(cost * 0.000015)


HEARD = "/v1/audio/transcriptions"
WORDS = [{"word": "duration", "start": 0.1, "duration": 5}] * 20_000
EVENTS = {"content-type": "text/event-stream"}
LAST_EVENT = b'data: {"type":"transcript.text.done","text":"a","usage":{"type":"duration","seconds":9}}\n\n'


def sound(value: Any, kind: dict[str, str] = JSON) -> Script:
    return Script([value if isinstance(value, bytes) else json.dumps(value).encode()], 200, kind)


@pytest.mark.parametrize(
    ("reply", "cost"),
    [
        (sound({"text": "a", "usage": {"type": "duration", "seconds": 9}}), "0.0009"),
        (sound({"text": "a", "duration": 8.47, "usage": {"type": "duration", "seconds": 9}}), "0.0009"),
        (sound({"task": "transcribe", "duration": 8.47, "text": "a"}), "0.000847"),
        (sound({"words": WORDS[:9], "duration": 8.470000267028809, "text": "a"}), "0.000847000027"),
        (sound({"task": 'a"b', "x": None, "duration": 3600, "text": "a", "words": WORDS}), "0.36"),
        (sound({"text": "a", "words": WORDS, "usage": {"type": "duration", "seconds": 3600}}), "0.36"),
        (sound(b'data: {"type":"transcript.text.delta","delta":"a"}\n\n' + LAST_EVENT, EVENTS), "0.0009"),
        (sound(b'{"x":NaN,"duration":8.47,"usage":{"seconds":NaN}}'), "0.000847"),
        # what does not say it, as far as the answer itself and no text in it speaks
        (sound({"text": "a"}), "0.72"),
        (sound({"words": WORDS, "duration": 8.47}), "0.72"),
        (sound({"text": '"duration": 1, "usage": {"seconds": 1}', "words": WORDS}), "0.72"),
        (sound(b'"usage": {"seconds": 1}', {"content-type": "text/plain"}), "0.72"),
        (sound(b'{"duration":1,"text":"a"}', {"content-type": "text/vtt; charset=utf-8"}), "0.72"),
        (sound({"duration": "8.47", "text": "a"}), "0.72"),
        (sound({"duration": True, "usage": {"seconds": 0}}), "0.72"),
        (sound({"duration": -5, "usage": {"seconds": -5}}), "0.72"),
        (sound(b'{"duration":1e999,"text":"a"}'), "100000"),
        (sound({"usage": {"seconds": 10**30}}), "100000"),
    ],
)
def test_a_recording_is_paid_by_the_seconds_that_the_answer_says(
    upstream: ScriptedUpstream, reply: Script, cost: str
) -> None:
    upstream.pages[HEARD] = reply
    with budgeted(upstream, float(cost), **PRICED) as base:
        body, headers = form(model="sound", file=b"x"), {**ONE, **FORM}
        assert call(base, "POST", HEARD, body, headers).status == 200
        assert cost_at(base) == cost
        assert call(base, "POST", HEARD, body, headers).status == 429


@pytest.mark.parametrize(
    ("begun", "cost"), [(b'{"task":"transcribe","duration":8.47,"text":"', "0.000847"), (b"data: {}", "0.72")]
)
def test_a_client_that_leaves_pays_the_seconds_that_were_said_or_else_the_most(
    upstream: ScriptedUpstream, begun: bytes, cost: str
) -> None:
    upstream.pages[HEARD] = Script([begun, HANG], 200, JSON)
    body, headers = form(model="sound", file=b"x"), {**ONE, **FORM}
    with budgeted(upstream, float(cost), **PRICED) as base:
        assert cost_after_leaving(base, HEARD, body, headers) == cost


def test_a_recording_whose_length_nobody_knows_has_no_known_cost(upstream: ScriptedUpstream) -> None:
    upstream.pages[HEARD] = sound({"text": "a"})
    body = form(model="short sound", file=b"x")
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], prices=PRICED, forwarding=["audio"])
    with serving(settings) as base:
        assert call(base, "POST", HEARD, body, FORM).status == 200
        assert call(base, "GET", "/v1/usage").json["cost_usd"] is None
    with budgeted(upstream, 1.0, **PRICED) as base:
        refused = call(base, "POST", HEARD, body, {**ONE, **FORM})
        assert (refused.status, refused.error["code"]) == (400, "model_without_price")
        assert "`per_second` and `unreported_seconds`" in refused.error["message"]


OTHERS: dict[str, tuple[str, Any, dict[str, str]]] = {
    IMAGES: (IMAGES, {"prompt": "x"}, {}),
    "speech": ("/v1/audio/speech", {"input": "x"}, {}),
    "moderation": ("/v1/moderations", {"input": "x"}, {}),
    "a form": ("/v1/audio/transcriptions", None, FORM),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_need_not_count_tokens_is_refused_without_a_price_of_its_own(
    upstream: ScriptedUpstream, case: str
) -> None:
    path, body, headers = OTHERS[case]
    answered(upstream, path, {"data": []})

    def ask(base: str, model: str) -> Reply:
        part = f'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n--b--\r\n'
        payload = part.encode() if body is None else {"model": model, **body}
        return call(base, "POST", path, payload, {**ONE, **headers})

    with budgeted(upstream, 0.012, **PRICED) as base:
        refused = ask(base, "tokens")
        assert (refused.status, refused.error["code"]) == (400, "model_without_price")
        assert "`per_request`" in refused.error["message"]
        assert upstream.received == []
        assert [ask(base, "free").status for _ in range(2)] == [200] * 2
        assert [ask(base, "fee").status for _ in range(3)] == [200, 200, 429]
        assert cost_at(base) == "0.012"


def test_without_a_budget_what_is_not_known_is_null(upstream: ScriptedUpstream) -> None:
    answered(upstream, "/v1/audio/speech", {})
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], prices=PRICED, forwarding=["audio"])
    with capture_logs() as lines, serving(settings) as base:
        assert call(base, "POST", "/v1/audio/speech", {"model": "tokens", "input": "x"}).status == 200
        assert call(base, "GET", "/v1/usage").json["cost_usd"] is None
    assert "cost_usd" not in next(line for line in lines if line["event"] == "response")


STREAMED = b"".join(
    b'data: {"type":"image_generation.%b","b64_json":"aGk="}\n\n' % each
    for each in (b"partial_image", b"partial_image", b"completed")
)


@pytest.mark.parametrize(
    ("data", "images"),
    [
        (json.dumps(DRAWN).encode(), 2),
        (json.dumps(DRAWN, indent=2).encode(), 2),
        (STREAMED, 1),
        (STREAMED * 3, 3),
        (STREAMED[:80], 0),
        (b'{"data":[{"url":"data:image/png;base64,' + b"A" * 20_000 + b'"}]}', 1),
        (b'{"revised_prompt":"\\"url\\":\\"x\\"","url":null}', 0),
        (b'"b64_json"' * 5_000, 0),
        (b"", 0),
    ],
)
@pytest.mark.parametrize("size", [1 << 30, 4096, 7, 1])
def test_images_are_counted_wherever_an_answer_is_cut_into_pieces(
    data: bytes, images: int, size: int
) -> None:
    counter = ImageCounter()
    for start in range(0, len(data), size):
        counter.feed(data[start : start + size])
    assert counter.images == images


def test_the_prices_of_a_file_are_enough_for_a_budget(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.scripts["real"] = used(1_000_000, 1_000_000)
    file = tmp_path / "models.toml"
    file.write_bytes(written_models({"real": FiledModel(price=Price(input=1.0, output=3.0))}))
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, model="real", models=["m", "n"])],
        limits=Limits(usd_per_day_per_key=4.0),
        models_file=str(file),
        prices={"n": Price(input=0.0, output=0.0)},
        api_keys=[hashed("one")],
    )
    with serving(settings) as base:
        assert [respond(base, ONE, model="n").status for _ in range(2)] == [200] * 2
        assert [respond(base, ONE, model="m").status for _ in range(2)] == [200, 429]
        report = call(base, "GET", "/v1/usage", None, ONE).json
    assert {row["model"]: row["cost_usd"] for row in report["data"]} == {"m": "4", "n": "0"}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize("count", ["1e18", "1000000000000000000", "-5", "10000000001"])
def test_an_absurd_count_of_an_upstream_costs_no_key_its_day(
    upstream: ScriptedUpstream, path: str, count: str
) -> None:
    usage = f'"usage": {{"prompt_tokens": {count}, "completion_tokens": 1, "total_tokens": {count}}}'
    if path == "/v1/embeddings":
        upstream.pages[path] = Script([f'{{"data": [], {usage}}}'.encode()], 200, JSON)
    else:
        last = f'data: {{"choices": [], {usage}}}\n\n'.encode()
        upstream.scripts["m"] = Script([chunk(content="Hi"), chunk("stop"), last, DONE])
    body = SURFACES.get(path, {"input": "Hi"})
    with budgeted(upstream, 1.0) as base:
        for _ in range(3):
            assert call(base, "POST", path, {"model": "m", **body}, ONE).status == 200
