"""Claude Code: its settings are environment variables, and a folder of its own in place of `~/.claude`."""

from __future__ import annotations

import json
from typing import Final

from openresponses_server.agents.coding.base import CodingAgent, Start, Target

_STATE: Final = ".claude.json"
# Every name under which it asks for a model by itself: for small tasks, for sub-agents, for each of its tiers
_MODELS: Final = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_FABLE_MODEL",
)
_QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",  # telemetry, updates, reports of errors
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # a line for Anthropic's billing at the head of each prompt
}


def _start(target: Target) -> Start:
    state = target.home / _STATE
    if not state.exists():  # its first start would ask for an account
        state.touch(mode=0o600)
        state.write_text(json.dumps({"hasCompletedOnboarding": True}), "utf-8")
    variables = _variables(target.base, target.model.id, target.key or "none")
    if target.model.limits_known:
        variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(target.model.context_window)
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(target.model.max_output_tokens)
    return Start([], variables | {"CLAUDE_CONFIG_DIR": str(target.home)})


def _shown(base: str, model: str, keys: bool) -> str:
    settings = {"env": _variables(base, model, "YOUR_KEY" if keys else "none")}
    return f"""\
# In ~/.claude/settings.json:
{json.dumps(settings, indent=2, ensure_ascii=False)}

# Then, in a shell:
claude
"""


def _variables(base: str, model: str, key: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_AUTH_TOKEN": key,
        **dict.fromkeys(_MODELS, model),
        **_QUIET,
    }


CLAUDE: Final = CodingAgent(
    name="claude",
    title="Claude Code",
    program="claude",
    package="@anthropic-ai/claude-code",
    oldest=(2, 0),
    tried=(2, 1),
    own_prefixes=("ANTHROPIC_", "CLAUDE_", "CLAUDECODE"),
    start=_start,
    shown=_shown,
)
