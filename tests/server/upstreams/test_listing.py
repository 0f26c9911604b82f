"""The list of models: what is known of them, when upstreams are asked, who hears of a change."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import Capabilities, Price, Settings, UpstreamSettings, load_settings
from openresponses_server.upstreams.catalog import ReportedModel
from openresponses_server.upstreams.listing import Listing
from openresponses_server.upstreams.prices import Prices
from openresponses_server.upstreams.routing.models import Router, build_router
from tests.support.clocks import Clock
from tests.support.serving import call, respond, serving
from tests.support.upstream import Script, ScriptedUpstream, text

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}


class Asked:
    """In the place of an upstream's list: `answer` is what it says, `times` how often it was asked."""

    def __init__(self, router: Router, *names: str) -> None:
        self.answer: list[ReportedModel] | Exception = list(map(ReportedModel, names))
        self.times = 0
        self.hold = asyncio.Event()
        self.hold.set()
        (upstream,) = router.upstreams()
        upstream.models = self  # type: ignore[method-assign, assignment]

    async def __call__(self) -> list[ReportedModel]:
        self.times += 1
        await self.hold.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def router() -> Router:
    upstreams = [UpstreamSettings(name="here", url="http://127.0.0.1:9")]
    return build_router(
        Settings(upstreams=upstreams, models={"set": Capabilities(context_window=7)}), Sealer()
    )


async def names(listing: Listing, *, refresh: bool = False) -> list[str]:
    return [model["id"] for model in await listing.models(refresh=refresh)]


def test_upstreams_are_asked_again_when_their_answers_are_old_or_somebody_wants_it(router: Router) -> None:
    async def main() -> None:
        source, clock = Asked(router, "a"), Clock(0.0)
        listing = Listing(router, 60.0, clock)
        for at, refresh, times in (
            (0, False, 1),
            (59, False, 1),
            (61, False, 2),
            (61.5, True, 2),  # it was a moment ago
            (63, True, 3),
            (64, False, 3),
        ):
            clock.now = at
            assert await names(listing, refresh=refresh) == ["a"]
            assert source.times == times, at

    asyncio.run(main())


def test_one_discovery_at_a_time_serves_all_who_wait(router: Router) -> None:
    async def main() -> None:
        source, clock = Asked(router, "a"), Clock(0.0)
        listing = Listing(router, 60.0, clock)
        source.hold.clear()
        waiting = [asyncio.create_task(names(listing, refresh=True)) for _ in range(20)]
        await asyncio.sleep(0.01)
        assert source.times == 1
        source.hold.set()
        assert await asyncio.gather(*waiting) == [["a"]] * 20
        assert source.times == 1

    asyncio.run(main())


def test_what_an_upstream_listed_stands_while_it_does_not_answer(router: Router) -> None:
    async def main() -> None:
        source, clock = Asked(router, "a"), Clock(0.0)
        listing = Listing(router, 60.0, clock)
        assert await names(listing) == ["a"]
        source.answer, clock.now = UpstreamError(502, "down"), 100.0
        assert await names(listing) == ["a"]
        source.answer, clock.now = [ReportedModel("b")], 200.0
        assert await names(listing) == ["b"]

    asyncio.run(main())


def test_a_change_is_notified_once_and_has_a_version(router: Router) -> None:
    async def main() -> None:
        source, clock, heard = Asked(router, "a"), Clock(0.0), list[int]()
        listing = Listing(router, 60.0, clock)
        remove = listing.on_change(heard.append)
        listing.on_change(lambda version: 1 // 0)
        assert listing.version == 0
        for at, answer in (
            (0, [ReportedModel("a")]),
            (100, [ReportedModel("a")]),
            (200, [ReportedModel("a", known=Capabilities(context_window=5))]),
        ):
            clock.now, source.answer = at, answer
            await listing.enriched()
        assert heard == [1, 2]
        remove()
        remove()
        clock.now, source.answer = 300, []
        assert await listing.enriched() == []
        assert (heard, listing.version) == ([1, 2], 3)

    asyncio.run(main())


def test_s10_others_have_the_event_loop_while_many_models_are_described_and_that_once(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[str] = []
    capabilities = router.catalog.capabilities

    def describing(upstream: str, model: str) -> Capabilities:
        described.append(model)
        return capabilities(upstream, model)

    monkeypatch.setattr(router.catalog, "capabilities", describing)

    async def main() -> None:
        listing = Listing(router)
        Asked(router, *(f"m{number}" for number in range(1000)))
        making = asyncio.create_task(names(listing))
        at_once, seen = 0, 0
        while not making.done():
            await asyncio.sleep(0)
            at_once, seen = max(at_once, len(described) - seen), len(described)
        assert 0 < at_once <= 100
        assert len(await making) == 1000
        await listing.models()
        await listing.enriched()
        assert len(described) == seen

    asyncio.run(main())


def test_the_configs_word_counts_before_the_upstreams_and_that_before_the_table(router: Router) -> None:
    async def main() -> None:
        source = Asked(router)
        known = Capabilities(context_window=5, max_output_tokens=3, tools=False)
        source.answer = [ReportedModel(name, f"Title of {name}", known) for name in ("set", "gpt-4o", "new")]
        models = {model.id: model for model in await Listing(router).enriched()}
        assert (models["set"].max_input_tokens, models["set"].max_output_tokens) == (4, 3)
        assert (models["gpt-4o"].max_input_tokens, models["gpt-4o"].images) == (2, True)
        assert (models["new"].name, models["new"].tools, models["new"].images) == (
            "Title of new",
            False,
            False,
        )
        assert router.resolve("gpt-4o").able.context_window == 5
        assert router.resolve("set").able.context_window == 7
        assert router.resolve("gpt-4o-2024-11-20").able.context_window == 128_000

    asyncio.run(main())


def test_efforts_and_prices_are_those_of_the_settings() -> None:
    """A server's levels count as far as the model has them; a price is shown if each upstream has it."""
    upstreams = [
        UpstreamSettings(
            name="here",
            url="http://127.0.0.1:9",
            models=["set", "likely"],
            options={"efforts": ["low", "high", "max"]},
            failover=["there/other"],
        ),
        UpstreamSettings(name="there", url="http://127.0.0.1:9"),
    ]
    known = {"set": Capabilities(efforts=["high", "none", "low"]), "likely": Capabilities(reasoning=True)}
    prices = Prices({"set": Price(input=1, output=2)}, {"likely": Price(input=1, output=2)})
    router = build_router(Settings(upstreams=upstreams, models=known), Sealer())

    async def main() -> None:
        models = {model.id: model for model in await Listing(router, prices=prices).enriched()}
        assert models["set"].efforts == ("low", "high")
        assert models["set"].pricing == "$1 in, $2 out per 1M tokens"
        assert models["likely"].efforts == ("low", "high", "max")
        assert models["likely"].pricing == ""

    asyncio.run(main())


@pytest.fixture
def listing() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as upstream:
        upstream.models = [
            {"id": "blind", "context_window": 4096, "capabilities": {"tools": False, "images": False}}
        ]
        upstream.scripts["blind"] = Script(text("Hi"))
        yield upstream


TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def test_s10_who_wants_a_refresh_again_and_again_has_upstreams_asked_once_a_second(
    listing: ScriptedUpstream,
) -> None:
    with serving(load_settings(upstreams=[{"url": listing.url}])) as base:
        for _ in range(20):
            assert call(base, "GET", "/v1/models?refresh=true").json["data"][0]["context_window"] == 4096
        assert 1 <= listing.listed <= 5
        assert call(base, "GET", "/v1/models?refresh=True").status == 200
        refused = call(base, "GET", "/v1/models?refresh=perhaps")
        assert (refused.status, refused.error["param"]) == (400, "refresh")


def test_what_an_upstream_reports_that_a_model_can_not_do_is_left_out_with_a_loss(
    listing: ScriptedUpstream,
) -> None:
    body: dict[str, Any] = {
        "model": "blind",
        "tools": [TOOL],
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "See"}, IMAGE]}],
    }
    with serving(load_settings(upstreams=[{"url": listing.url}])) as base:
        assert "openresponses-losses" not in respond(base, **body).headers  # nobody knows yet
        assert "tools" in listing.last("blind").body
        call(base, "GET", "/v1/models")
        reply = respond(base, **body)
        assert "tools: the model does not have any" in reply.headers["openresponses-losses"]
        assert "input.content: images, which the model can't see" in reply.headers["openresponses-losses"]
        sent = listing.last("blind").body
        assert "tools" not in sent
        assert "image" not in str(sent["messages"]).replace("[image, which this model can't see]", "")
