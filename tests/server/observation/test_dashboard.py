"""The dashboard for Grafana and the page on observing name the metrics that there are, and all of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from prometheus_client.metrics import Histogram

from openresponses_server.observation.metric_values import BatchHistogram
from tests.support.metrics import families, family_name
from tests.support.shared import REPOSITORY

DASHBOARD: dict[str, Any] = json.loads((REPOSITORY / "docs/grafana/openresponses-bridge.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
_METRIC = re.compile(r"(openresponses_bridge_\w+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"by \(([^)]*)\)")
_OF_GRAFANA = {"$__rate_interval"}
_PREFIX = "openresponses_bridge_"


def _series() -> dict[str, set[str]]:
    """Each name that can be queried, with its labels."""
    series: dict[str, set[str]] = {}
    for family in families():
        labels = set(family._labelnames)
        if isinstance(family, Histogram | BatchHistogram):
            series |= {f"{family._name}_bucket": {*labels, "le"}}
            series |= {f"{family._name}_{part}": labels for part in ("sum", "count")}
        else:
            series[family_name(family)] = labels
    return series


SERIES = _series()


def _expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


def check(expression: str) -> None:
    """Raises AssertionError for a metric or a label that there is not, and for unbalanced brackets."""
    selectors = _METRIC.findall(expression)
    assert selectors, expression
    labels = set.union(*(SERIES.get(name, set()) for name, _ in selectors))
    for name, matchers in selectors:
        assert name in SERIES, name
        used = {each.partition("=")[0].rstrip("!") for each in matchers.split(",") if each}
        assert used <= SERIES[name], (name, used - SERIES[name])
    for group in _GROUPED.findall(expression):
        assert {each.strip() for each in group.split(",")} <= labels, expression
    for opened, closed in ("()", "{}", "[]"):
        assert expression.count(opened) == expression.count(closed), expression


@pytest.mark.parametrize("expression", _expressions())
def test_each_query_asks_for_what_there_is(expression: str) -> None:
    check(expression)


@pytest.mark.parametrize(
    "wrong",
    [
        "sum(openresponses_bridge_nothing_total)",
        'sum(openresponses_bridge_responses_total{key="k"})',
        "sum by (route) (openresponses_bridge_responses_total)",
        "sum(openresponses_bridge_responses_total",
        "sum(up)",
    ],
)
def test_a_query_for_what_is_not_there_would_be_found(wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(wrong)


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for each in _expressions() for name, _ in _METRIC.findall(each)}
    bare = {re.sub("_(bucket|sum|count)$", "", name) for name in shown}
    missing = {name for name in SERIES if re.sub("_(bucket|sum|count)$", "", name) not in bare}
    assert not missing


def test_legends_and_variables_are_there() -> None:
    known = set.union(*SERIES.values())
    for panel in PANELS:
        for target in panel["targets"]:
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known
    variables = {f"${each['name']}" for each in DASHBOARD["templating"]["list"]}
    used = {name for each in _expressions() for name in re.findall(r"\$\w+", each)}
    assert used <= variables | _OF_GRAFANA
    for each in DASHBOARD["templating"]["list"]:
        if each["type"] == "query":
            match = re.fullmatch(r"label_values\((\S+), (\w+)\)", each["query"])
            assert match
            check(match[1])
            assert match[2] in SERIES[match[1].partition("{")[0]]


def test_panels_have_ids_of_their_own_and_places_beside_each_other() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [tuple(panel["gridPos"][name] for name in "xy") for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)


def test_the_page_names_every_metric() -> None:
    page = (REPOSITORY / "docs/observing.md").read_text()
    names = {family_name(family) for family in families()}
    assert not {name for name in names if f"`{name.removeprefix(_PREFIX)}`" not in page}
