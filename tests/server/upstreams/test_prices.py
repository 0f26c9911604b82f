"""What responses cost."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from openresponses_bridge.protocol.usage import Usage, sum_of
from openresponses_bridge.seal import Sealer
from openresponses_server.limits.money import Counted, units
from openresponses_server.settings import (
    Price,
    PriceTier,
    Settings,
    SettingsError,
    UpstreamSettings,
    load_settings,
)
from openresponses_server.upstreams.prices import CostShown, Prices, dollars
from openresponses_server.upstreams.routing.models import build_router
from tests.support.documents import blocks_of
from tests.support.serving import call, respond, serving
from tests.support.upstream import Script, ScriptedUpstream, text

GPT = Price(input=2.5, cached_input=0.25, cache_write=3.0, output=10.0, reasoning=12.0)
TIERS = (
    PriceTier(above=200, input=2.0, output=20.0),
    PriceTier(above=1000, input=3.0, cached_input=0.5, output=30.0),
)
LONG = Price(input=1.0, output=10.0, cached_input=0.1, tiers=TIERS)


def used(**given: int) -> Usage:
    total = given.pop("total", None)
    counts = {f"{name}_tokens": number for name, number in ({"input": 0, "output": 0} | given).items()}
    return Usage.of(**counts, total_tokens=total)


@pytest.mark.parametrize(
    ("given", "cost"),
    [
        (used(), "0"),
        (used(input=1), "0.0000025"),
        (used(input=1_000_000, output=1_000_000), "12.5"),
        (used(input=100, cached=60, cache_write=40), "0.000135"),
        (used(output=100, reasoning=50), "0.0011"),
        (used(input=10, cached=99, cache_write=99), "0.0000025"),
        (used(output=10, reasoning=99), "0.00012"),
        (used(total=5), "0.00005"),
    ],
)
def test_each_kind_of_token_has_its_price(given: Usage, cost: str | None) -> None:
    assert dollars(Prices({"gpt": GPT}).cost("gpt", "u", given)) == cost


def test_a_cost_is_shown_in_all_of_its_digits() -> None:
    assert dollars(10**40 + 1) == f"1{'0' * 28}.000000000001"
    assert [dollars(each) for each in (1, 10**12, -15 * 10**11, 0)] == ["0.000000000001", "1", "-1.5", "0"]


def test_what_is_not_given_is_as_input_and_output_and_the_closest_name_counts() -> None:
    prices = Prices({"*": Price(input=1.0, output=2.0), "a-*": Price(input=3.0, output=0.0)})
    everything = used(input=30, cached=10, cache_write=10, output=20, reasoning=10)
    assert dollars(prices.cost("b", "u", everything)) == "0.00007"
    assert dollars(prices.cost("a-1", "u", everything)) == "0.00009"
    assert Prices({"a-*": GPT}).cost("b", "a-1", everything) is None


@given(st.lists(st.integers(0, 10**9), max_size=50), st.integers(0, 10**6))
def test_a_sum_of_costs_is_the_cost_of_the_sum(tokens: list[int], price: int) -> None:
    prices = Prices({"m": Price(input=price / 10_000, output=1.0)})
    costs = [prices.cost("m", "u", used(input=each)) for each in tokens]
    assert sum(each or 0 for each in costs) == prices.cost("m", "u", used(input=sum(tokens)))


@pytest.mark.parametrize(
    ("given", "cost"),
    [
        (used(input=200, output=10), "0.0003"),
        (used(input=201, output=10), "0.000602"),
        (used(input=300, cached=100, output=0), "0.0006"),  # a tier has its own price of the cache
        (used(input=1000, output=0), "0.002"),
        (used(input=1001, cached=1000, output=1), "0.000533"),
        (used(total=300), "0.006"),
        (used(input=-5, output=-5), "-0.0000505"),
    ],
)
def test_all_tokens_of_a_long_request_cost_what_its_tier_says(given: Usage, cost: str) -> None:
    for tiers in (TIERS, TIERS[::-1]):
        prices = Prices({"m": replace(LONG, tiers=tiers)})
        assert dollars(prices.cost("m", "u", given)) == cost


def test_each_round_has_the_prices_of_its_own_length() -> None:
    prices = Prices({"m": LONG})
    rounds = sum_of([used(input=150, output=1), used(input=201, output=1)])
    assert dollars(prices.cost("m", "u", rounds)) == "0.000582"
    shown = prices.shown("m", ["u", "v"], rounds)
    assert shown == CostShown("0.000582", ["0.00016", "0.000422"])
    assert prices.shown("m", ["u"], used(input=150, output=1)) == CostShown("0.00016")
    assert prices.shown("n", ["u"], rounds) == CostShown()


def test_each_round_has_the_prices_of_the_model_that_answered_it() -> None:
    cheap, dear = Price(input=1.0, output=1.0, per_request=0.5), Price(input=3.0, output=3.0)
    prices = Prices({}, {"cheap": cheap, "dear": dear, "free": Price(per_request=0.0)})
    rounds = sum_of([used(input=100), used(input=10, output=1)])
    for models, cost in (
        (["cheap", "cheap"], "0.500111"),
        (["cheap", "dear"], "0.500133"),
        (["dear", "cheap"], "0.000311"),
        (["cheap", "other"], None),
        (["other", "other"], None),
        (["cheap", "free"], None),
    ):
        assert dollars(prices.cost_of_rounds("m", models, rounds)) == cost
    assert dollars(prices.cost_of_rounds("m", ["dear"], used(input=100))) == "0.0003"


def test_the_operators_own_prices_go_before_those_of_the_file_which_are_by_the_upstreams_names() -> None:
    prices = Prices({"mine-*": Price(input=0.0, output=0.0)}, {"gpt-9": GPT, "mine-1": GPT})
    one = used(input=1_000_000)
    assert prices.cost("mine-1", "gpt-9", one) == 0
    assert dollars(prices.cost("fast", "gpt-9", one)) == "2.5"
    assert prices.cost("gpt-9", "other", one) is None  # an alias for a model that is not in the file
    assert prices.cost("fast", "vendor/gpt-9", one) is None
    assert prices.has("fast", ["gpt-9"])
    assert not prices.has("fast", ["gpt-9", "other"])  # to which it may fail over
    assert prices.shown("fast", ["gpt-9", "other"], one) == CostShown()


def test_what_is_not_counted_in_tokens_costs_by_its_number_and_request_or_is_not_known() -> None:
    prices = Prices(
        {
            "image": Price(per_image=0.04),
            "both": Price(input=5.0, output=40.0, per_image=0.04),
            "fee": Price(per_request=0.001),
            "tokens": Price(input=5.0, output=40.0),
            "tokens and fee": Price(input=5.0, output=40.0, per_request=0.001),
            "free": Price(per_request=0.0),
            "speech": Price(per_character=0.000015),
            "sound": Price(per_second=0.0001),
            "long sound": Price(per_second=0.0001, unreported_seconds=7200),
            "sound and fee": Price(per_second=0.0001, per_request=0.001),
            "all": Price(input=5.0, output=40.0, per_second=0.0001, unreported_seconds=60, per_request=0.001),
        }
    )
    names = ["image", "both", "fee", "tokens", "tokens and fee", "free", "unknown"]
    names += ["speech", "sound", "long sound", "sound and fee", "all"]
    cases: list[tuple[Usage | None, Counted, int | Fraction | None]] = [
        (None, "requests", None),
        (None, "images", 3),
        (None, "characters", 4001),
        (None, "seconds", Fraction("8.47")),
        (None, "seconds", None),
        (used(input=100, output=200), "seconds", 3),
    ]
    assert {name: [dollars(prices.cost(name, "u", *each)) for each in cases] for name in names} == {
        "image": [None, "0.12", None, None, None, None],
        "both": [None, "0.12", None, None, None, "0.0085"],
        "fee": ["0.001"] * 6,
        "tokens": [None, None, None, None, None, "0.0085"],
        "tokens and fee": [*["0.001"] * 5, "0.0095"],
        "free": ["0"] * 6,
        "unknown": [None] * 6,
        "speech": [None, None, "0.060015", None, None, None],
        "sound": [None, None, None, "0.000847", None, "0.0003"],
        "long sound": [None, None, None, "0.000847", "0.72", "0.0003"],
        "sound and fee": ["0.001", "0.001", "0.001", "0.001847", None, "0.0013"],
        "all": ["0.001", "0.001", "0.001", "0.001847", "0.007", "0.0095"],
    }
    kinds: list[Counted] = ["tokens", "images", "characters", "seconds", "requests"]
    assert {name: [kind for kind in kinds if prices.has(name, ["u"], kind)] for name in names} == {
        "image": ["images"],
        "both": ["tokens", "images"],
        "fee": kinds,
        "tokens": ["tokens"],
        "tokens and fee": kinds,
        "free": kinds,
        "unknown": [],
        "speech": ["characters"],
        "sound": [],  # an answer need not say how long it was
        "long sound": ["seconds"],
        "sound and fee": ["tokens", "images", "characters", "requests"],
        "all": kinds,
    }


@given(st.floats(0.001, 1e6), st.floats(1e-12, 1.0))
def test_seconds_are_paid_to_the_nearest_unit(seconds: float, price: float) -> None:
    exactly = Fraction(str(seconds)) * units(price)
    cost = Prices({"m": Price(per_second=price)}).cost("m", "u", None, "seconds", Fraction(str(seconds)))
    assert cost is not None
    assert abs(cost - exactly) <= Fraction(1, 2)


def test_the_report_and_the_log_line_say_it_and_an_unknown_price_is_null(upstream: ScriptedUpstream) -> None:
    for name in ("priced", "unpriced"):
        upstream.scripts[name] = Script(text("a"))
    given = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)], prices={"priced": Price(input=1e6, output=0.0)}
    )
    with capture_logs() as lines, serving(given) as base:
        tokens = respond(base, model="priced").json["usage"]["input_tokens"]
        report = call(base, "GET", "/v1/usage").json
        assert report["cost_usd"] == report["data"][0]["cost_usd"] == str(tokens)
        respond(base, model="unpriced")
        report = call(base, "GET", "/v1/usage").json
    assert report["cost_usd"] is None
    (agent,) = report["agents"]
    assert agent["cost_usd"] is None
    assert {row["model"]: row["cost_usd"] for row in report["data"]} == {
        "priced": str(tokens),
        "unpriced": None,
    }
    ended = [line for line in lines if line["event"] == "response"]
    assert [line.get("cost_usd") for line in ended] == [str(tokens), None]


@pytest.mark.parametrize(
    ("price", "label"),
    [
        (Price(input=3.0, output=15.0), "$3 in, $15 out per 1M tokens"),
        (GPT, "$2.5 in, $0.25 cached, $10 out per 1M tokens"),
        (LONG, "$1 in, $0.1 cached, $10 out per 1M tokens (long input: other prices)"),
        (Price(input=0.0, output=0.0), "$0 in, $0 out per 1M tokens"),
        (Price(per_request=0.01), "$0.01 per request"),
        (Price(input=1.0, output=2.0, per_request=0.5), "$1 in, $2 out per 1M tokens, $0.5 per request"),
        (Price(per_image=0.04), ""),
    ],
)
def test_a_price_in_words(price: Price, label: str) -> None:
    assert Prices({"m": price}).label("m", ["u", "v"]) == label
    assert Prices({}, {"u": price}).label("m", ["u"]) == label
    assert Prices({}, {"u": price}).label("m", ["u", "v"]) == ""


@pytest.mark.parametrize(
    "price",
    [
        "",
        "input = -1.0\noutput = 1.0",
        "input = 1.0",
        "input = nan\noutput = 1.0",
        "input = inf\noutput = 1",
        "output = 1.0\nper_image = 1.0",
        "cached_input = 1.0\nper_image = 1.0",
        "per_image = nan",
        "per_request = -1.0",
        "per_character = nan",
        "per_character = 1e-13",
        "input = 1.0\noutput = 1.0\ncached_input = 1e-7",
        "per_second = -0.1",
        "unreported_seconds = 60",
        "per_image = 1.0\nunreported_seconds = 60",
        "per_second = 1.0\nunreported_seconds = -1",
        "per_second = 1.0\nunreported_seconds = 1.5",
        "per_image = 1.0\ntiers = [{ above = 1, input = 1.0, output = 1.0 }]",
        "input = 1.0\noutput = 1.0\ntiers = [{ above = 0, input = 1.0, output = 1.0 }]",
        "input = 1.0\noutput = 1.0\ntiers = [{ above = 1, input = nan, output = 1.0 }]",
        "input = 1.0\noutput = 1.0\ntiers = [{ above = 1, input = 1.0 }]",
        "input = 1.0\noutput = 1.0\ntiers = [{above=1,input=1.0,output=1.0},{above=1,input=2.0,output=1.0}]",
    ],
)
def test_wrong_prices_are_refused(tmp_path: Path, price: str) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text(f"[prices.m]\n{price}\n")
    with pytest.raises(SettingsError):
        Prices(load_settings(path).prices)


def test_the_config_of_the_page_can_be_used(tmp_path: Path) -> None:
    (block,) = [each for each in blocks_of("docs/keys.md") if each.heading == "Costs"]
    (tmp_path / "models.toml").write_text('["gpt-9"]\nprice = { input = 1.0, output = 2.0 }\n')
    (tmp_path / "bridge.toml").write_text(block.code)
    settings = load_settings(tmp_path / "bridge.toml")
    prices = Prices(settings.prices, build_router(settings, Sealer()).catalog.filed_prices)
    assert dollars(prices.cost("gpt-image-1", "u", None, "images", 2)) == "0.08"
    assert dollars(prices.cost("tts-1", "u", None, "characters", 1000)) == "0.015"
    assert dollars(prices.cost("whisper-1", "u", None, "seconds", 60)) == "0.006"
    assert dollars(prices.cost("whisper-1", "u", None, "seconds")) == "0.72"
    assert dollars(prices.cost("our-1", "u", used(input=200_001))) == "0.200001"
    assert dollars(prices.cost("any", "gpt-9", used(output=1))) == "0.000002"
