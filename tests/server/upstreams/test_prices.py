"""What responses cost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from openresponses_server.settings import Price, Settings, SettingsError, UpstreamSettings, load_settings
from openresponses_server.upstreams.prices import Prices, dollars
from tests.support.serving import call, respond, serving
from tests.support.upstream import Script, ScriptedUpstream, text

GPT = Price(input=2.5, cached_input=0.25, cache_write=3.0, output=10.0, reasoning=12.0)


def counts(**given: int) -> dict[str, int]:
    names = ("input", "output", "cached", "cache_write", "reasoning", "total")
    return {f"{name}_tokens": given.get(name, 0) for name in names}


@pytest.mark.parametrize(
    ("given", "cost"),
    [
        (counts(), "0"),
        (counts(input=1), "0.0000025"),
        (counts(input=1_000_000, output=1_000_000), "12.5"),
        (counts(input=100, cached=60, cache_write=40), "0.000135"),
        (counts(output=100, reasoning=50), "0.0011"),
        (counts(input=10, cached=99, cache_write=99), "0.0000025"),
        (counts(output=10, reasoning=99), "0.00012"),
        (counts(total=5), None),
    ],
)
def test_each_kind_of_token_has_its_price(given: dict[str, int], cost: str | None) -> None:
    assert dollars(Prices({"gpt": GPT}).cost("gpt", given)) == cost


def test_what_is_not_given_is_as_input_and_output_and_the_closest_name_counts() -> None:
    prices = Prices({"*": Price(input=1.0, output=2.0), "a-*": Price(input=3.0, output=0.0)})
    everything = counts(input=30, cached=10, cache_write=10, output=20, reasoning=10)
    assert dollars(prices.cost("b", everything)) == "0.00007"
    assert dollars(prices.cost("a-1", everything)) == "0.00009"
    assert Prices({"a-*": GPT}).cost("b", everything) is None


@given(st.lists(st.integers(0, 10**9), max_size=50), st.integers(0, 10**6))
def test_a_sum_of_costs_is_the_cost_of_the_sum(tokens: list[int], price: int) -> None:
    prices = Prices({"m": Price(input=price / 10_000, output=1.0)})
    costs = [prices.cost("m", counts(input=each)) for each in tokens]
    assert sum(each or 0 for each in costs) == prices.cost("m", counts(input=sum(tokens)))


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
    assert {row["model"]: row["cost_usd"] for row in report["data"]} == {
        "priced": str(tokens),
        "unpriced": None,
    }
    ended = [line for line in lines if line["event"] == "response"]
    assert [line.get("cost_usd") for line in ended] == [str(tokens), None]


@pytest.mark.parametrize(
    "price",
    ["input = -1.0\noutput = 1.0", "input = 1.0", "input = nan\noutput = 1.0", "input = inf\noutput = 1"],
)
def test_wrong_prices_are_refused(tmp_path: Path, price: str) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text(f"[prices.m]\n{price}\n")
    with pytest.raises(SettingsError):
        Prices(load_settings(path).prices)
