"""Models as Codex describes them: their known properties decide which of its features it offers."""

import asyncio
from typing import Any

import pytest

from openresponses_bridge.models.information import EnrichedModelData
from openresponses_bridge.seal import Sealer
from openresponses_server.settings import Capabilities, Settings, UpstreamSettings
from openresponses_server.upstreams import listing
from openresponses_server.upstreams.catalog import ReportedModel
from openresponses_server.upstreams.listing import Listing, codex_model
from openresponses_server.upstreams.routing.models import build_router

# Fields without which some version of Codex refuses the whole list
WANTED = {
    *("slug", "display_name", "description", "supported_reasoning_levels", "shell_type", "visibility"),
    *("supported_in_api", "priority", "upgrade", "base_instructions", "supports_reasoning_summaries"),
    *("support_verbosity", "default_verbosity", "apply_patch_tool_type", "truncation_policy"),
    *("supports_parallel_tool_calls", "context_window", "experimental_supported_tools"),
}


def described(**known: Any) -> dict[str, Any]:
    return codex_model(EnrichedModelData.of("m", "here", **known), 3)


def test_every_field_is_there_whatever_is_known() -> None:
    for entry in (described(), described(tools=False, images=True, reasoning=True, context_window=9)):
        assert set(entry) >= WANTED
        assert entry["slug"] == "m"
        assert entry["priority"] == 3
        assert "*** Begin Patch" in entry["base_instructions"]


@pytest.mark.parametrize(
    ("known", "window", "full"),
    [
        ({"context_window": 100_000, "max_output_tokens": 1_000}, 100_000, 90_000),
        ({"context_window": 100_000, "max_output_tokens": 40_000}, 100_000, 60_000),
        ({"max_input_tokens": 50_000, "max_output_tokens": 1_000}, 50_000, 45_000),
        ({}, 128_000, 115_200),
    ],
)
def test_history_is_summarised_before_there_is_too_little_room_for_an_answer(
    known: dict[str, int], window: int, full: int
) -> None:
    entry = described(**known)
    assert entry["context_window"] == window
    assert entry["auto_compact_token_limit"] == full


def test_abilities_decide_what_is_offered() -> None:
    plain, able = described(), described(images=True, reasoning=True)
    assert plain["input_modalities"] == ["text"]
    assert able["input_modalities"] == ["text", "image"]
    assert plain["supported_reasoning_levels"] == []
    assert plain["default_reasoning_level"] is None
    assert [each["effort"] for each in able["supported_reasoning_levels"]] == ["low", "medium", "high"]
    assert able["default_reasoning_level"] == "medium"
    assert plain["visibility"] == "list"
    assert described(tools=False)["visibility"] == "hide"


def test_s10_a_list_of_many_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its instructions with it: 10,000 models would be 40 MB."""
    monkeypatch.setattr(listing, "MOST_MODELS", 5)
    router = build_router(Settings(upstreams=[UpstreamSettings(url="http://127.0.0.1:9")]), Sealer())
    (upstream,) = router.upstreams()

    async def models() -> list[ReportedModel]:
        return [ReportedModel(f"m{number}", "", Capabilities()) for number in range(9)]

    upstream.models = models  # type: ignore[method-assign]
    shown = asyncio.run(Listing(router).for_codex())
    assert [each["slug"] for each in shown] == ["m0", "m1", "m2", "m3", "m4"]
    assert [each["priority"] for each in shown] == [0, 1, 2, 3, 4]
