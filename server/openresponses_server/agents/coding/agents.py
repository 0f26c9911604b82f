"""Codex CLI: its settings are given as flags, so that its folder holds only what it and its user put
there."""

from __future__ import annotations

import json
import shlex
from typing import Final

from openresponses_server.agents.coding.base import KEY_VARIABLE, CodingAgent, Start, Target

_PROVIDER: Final = "openresponses-bridge"
_CATALOG: Final = "models.json"
_ALWAYS: Final[dict[str, str | bool]] = {
    # what it would else ask OpenAI and GitHub for; none of it works without an account there
    "check_for_update_on_startup": False,
    "analytics.enabled": False,
    "feedback.enabled": False,
    "features.apps": False,
    "features.plugins": False,
    # what it needs itself, and the commands of the model don't
    f"shell_environment_policy.set.{KEY_VARIABLE}": "",
}


def _start(target: Target) -> Start:
    catalog = target.scratch / _CATALOG
    catalog.write_text(json.dumps({"models": target.catalog}), "utf-8")
    settings = {
        "model": target.model.id,
        "model_provider": _PROVIDER,
        "model_catalog_json": str(catalog),
        **{
            f"model_providers.{_PROVIDER}.{name}": value
            for name, value in _provider(target.base, True).items()
        },
        **_ALWAYS,
    }
    arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={_toml(value)}")]
    return Start(arguments, {"CODEX_HOME": str(target.home), KEY_VARIABLE: target.key or "none"})


def _shown(base: str, model: str, keys: bool) -> str:
    provider = "\n".join(f"{name} = {_toml(value)}" for name, value in _provider(base, keys).items())
    key, shown = "", ""
    if keys:  # given to curl on its input: others on the machine can read command lines
        key = f"export {KEY_VARIABLE}=YOUR_KEY\nprintf 'authorization: Bearer %s' \"${KEY_VARIABLE}\" |\n  "
        shown = " -H @-"
    return f"""\
# In ~/.codex/config.toml:
model = {_toml(model)}
model_provider = "{_PROVIDER}"
model_catalog_json = "bridge-models.json"  # its tools and limits are then the model's

[model_providers.{_PROVIDER}]
{provider}

# Then, in a shell:
{key}curl -f{shown} {shlex.quote(f"{base}/v1/models?client_version=1")} -o ~/.codex/bridge-models.json
codex
"""


def _provider(base: str, keys: bool) -> dict[str, str | bool]:
    given: dict[str, str | bool] = {"name": _PROVIDER, "base_url": f"{base}/v1", "wire_api": "responses"}
    return given | ({"env_key": KEY_VARIABLE} if keys else {})


def _toml(value: str | bool) -> str:
    """A value of TOML, whose strings and booleans JSON writes in the same way."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


CODEX: Final = CodingAgent(
    name="codex",
    title="Codex CLI",
    program="codex",
    package="@openai/codex",
    oldest=(0, 130),
    tried=(0, 169),
    own_prefixes=("CODEX_", "OPENAI_"),
    start=_start,
    shown=_shown,
)
