"""`UsageTracker`: the estimate of a request until its tokens are counted."""

from openresponses_bridge.models.usage import AgentUsage, UsageTracker
from openresponses_bridge.protocol.usage import Usage


def test_a_request_is_estimated_and_then_counted() -> None:
    seen: list[AgentUsage] = []
    tracker = UsageTracker(seen.append)
    started = tracker.start_request("a", 800, 1000, "m")
    assert (started.input_tokens, started.max_input_tokens, started.usage) == (800, 1000, None)
    done = tracker.complete_request("a", Usage.of(600, 50, cached_tokens=10, reasoning_tokens=5), "m")
    assert (done.input_tokens, done.max_input_tokens, done.requests) == (600, 1000, 1)
    assert seen == [started, done]
    assert tracker.get("a") == done


def test_requests_of_an_agent_and_of_all_add_up() -> None:
    tracker = UsageTracker()
    for agent, tokens in (("a", 1), ("b", 10), ("a", 100)):
        tracker.start_request(agent, 0, 0, "m")
        tracker.complete_request(agent, Usage.of(tokens, tokens, cached_tokens=tokens), "m")
    assert [(each.agent_id, each.spent.input_tokens, each.requests) for each in tracker] == [
        ("b", 10, 1),
        ("a", 101, 2),
    ]
    assert tracker.total == Usage.of(111, 111, cached_tokens=111)


def test_without_usage_the_estimate_stands() -> None:
    tracker = UsageTracker()
    tracker.start_request("a", 70, 0, "m")
    done = tracker.complete_request("a", None, "m")
    assert (done.input_tokens, done.max_input_tokens) == (70, 0)
    assert tracker.total == Usage.of(0, 0)


def test_an_unannounced_request_counts_as_well() -> None:
    tracker = UsageTracker()
    assert tracker.complete_request("a", Usage.of(3, 2), "m").spent.total_tokens == 5


def test_agents_are_bounded_and_the_total_is_kept() -> None:
    tracker = UsageTracker(max_agents=2)
    for agent in ("a", "b", "a", "c"):
        tracker.complete_request(agent, Usage.of(1, 0), "m")
    assert [each.agent_id for each in tracker] == ["a", "c"]
    assert tracker.get("b") is None
    assert tracker.total.input_tokens == 4


def test_failures_are_counted_with_what_they_spent() -> None:
    tracker = UsageTracker()
    tracker.start_request("a", 50, 100, "m")
    assert tracker.fail_request("a", "m").input_tokens == 50
    tracker.start_request("a", 60, 100, "m")
    failed = tracker.fail_request("a", "m", Usage.of(61, 2, estimated=True))
    assert (failed.requests, failed.failed, failed.input_tokens) == (2, 2, 61)
    done = tracker.complete_request("a", Usage.of(1, 1, cache_write_tokens=1), "m")
    assert (done.failed, done.spent) == (2, Usage.of(62, 3, cache_write_tokens=1, estimated=True))
