"""Whole prompts, to be read: as raw messages and in the words of each API."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from openresponses_agent.prompt import (
    BuildPromptResult,
    PromptContext,
    PromptRenderer,
    create_anthropic_request_body,
    create_capi_request_body,
    create_responses_request_body,
    share_passed,
)
from openresponses_bridge.seal import Sealer
from tests.support import chat_rules
from tests.support.prompts import everything, plain, text_result, two_edits
from tests.support.snapshots import snapshots


def long_result() -> PromptContext:
    """The seed's scenario with a file of 500 lines brought back."""
    done = {"internal_1_0": text_result("".join(f"{number}: joke\n" for number in range(500)))}
    return replace(two_edits(), tool_call_results=done)


PROMPTS: dict[str, tuple[PromptContext, dict[str, Any]]] = {
    "first_question": (two_edits(rounds=0), {}),
    "two_edits": (two_edits(), {}),
    "everything": (everything(), {"cache_breakpoints": True, "history_thinking": True}),
    "without_eyes": (everything(), {"supports_images": False}),
    "summarised": (
        everything(),
        {
            "max_prompt_tokens": 700,
            "trigger": share_passed(0.5),
            "keep_share": 0.4,
            "summary_share": 0.25,
            "supports_images": False,
        },
    ),
    "result_cut": (long_result(), {"max_prompt_tokens": 600}),
}


def raw(result: BuildPromptResult) -> dict[str, Any]:
    return {
        "messages": plain(result.messages),
        "tools": [tool.name for tool in result.tools],
        "token_count": result.token_count,
        "summary": plain(result.summary),
        "stateful_marker": result.stateful_marker,
    }


FORMS: dict[str, Callable[[BuildPromptResult], dict[str, Any]]] = {
    "raw": raw,
    "chat": lambda result: create_capi_request_body(result, "model", cache_control=True, stream=True),
    "anthropic": lambda result: create_anthropic_request_body(result, "model", max_tokens=4096, stream=True),
    "responses": lambda result: create_responses_request_body(result, "model", sealer=Sealer(), stream=True),
}


@snapshots("{prompt}/{form}.json", prompt=PROMPTS, form=FORMS)
def test_prompts_in_all_forms(prompt: str, form: str, snapshot: SnapshotAssertion) -> None:
    context, options = PROMPTS[prompt]
    body = FORMS[form](PromptRenderer(**options).render(context))
    if form == "chat":
        assert chat_rules.violations({"model": "m", "messages": body["messages"]}) == []
    assert body == snapshot
