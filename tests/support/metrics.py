"""The metrics of a server."""

from collections.abc import Iterator

from prometheus_client.metrics import Counter, MetricWrapperBase

from openresponses_server.limits.gate import Gate
from openresponses_server.observation.metric_values import BatchHistogram
from openresponses_server.observation.metrics import Metrics
from openresponses_server.settings import Limits


def families() -> Iterator[MetricWrapperBase | BatchHistogram]:
    for collector in Metrics(Gate(Limits()))._registry._collector_to_names:
        assert isinstance(collector, MetricWrapperBase | BatchHistogram)
        yield collector


def family_name(family: MetricWrapperBase | BatchHistogram) -> str:
    """The name that the pages use for a metric: a counter's ends with `_total`."""
    return f"{family._name}_total" if isinstance(family, Counter) else family._name
