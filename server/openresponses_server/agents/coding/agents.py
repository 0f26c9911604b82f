"""Codex CLI: its settings are given as flags, so that its folder holds only what it and its user put
there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct

from openresponses_bridge.models.information import EnrichedModelData
from openresponses_server.settings.files import did_you_mean

# What every coding agent is made of: how it is found, and what it is started with.

KEY_VARIABLE: Final = "OPENRESPONSES_BRIDGE_KEY"
"""Where an agent that can choose the variable finds the server's key."""


class Target(Struct, frozen=True, kw_only=True):
    """What an agent is to use: a server (`base`, an address without `/v1`), its `key` (None where none is
    asked for) and one of its models. `model` has what is known of it; `catalog` are all models as Codex
    describes them. `home` is the agent's folder, which is kept, `scratch` a folder that lasts as long as the
    agent."""

    base: str
    key: str | None
    model: EnrichedModelData
    catalog: list[dict[str, Any]]
    home: Path
    scratch: Path


class Start(Struct, frozen=True):
    """`arguments` come before those of the user, `variables` over the environment."""

    arguments: list[str]
    variables: dict[str, str]


class CodingAgent(Struct, frozen=True, kw_only=True):
    """An agent that can be run.

    `name` is what `run` calls it and `program` what its package of npm, `package`, installs. `tried` are the
    versions that the tests run, `oldest` the one from which on it is known to work, as (major, minor).
    Environment variables whose names begin with one of `own_prefixes` configure it, and are not passed on.
    `start` makes its configuration; `shown` is the same as text to be put where the user's own is, for a
    server at an address, a model, and with a key or without."""

    name: str
    title: str
    program: str
    package: str
    oldest: tuple[int, int]
    tried: tuple[int, int]
    own_prefixes: tuple[str, ...]
    start: Callable[[Target], Start]
    shown: Callable[[str, str, bool], str]

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"npm install -g {self.package}"

    def environment(self, given: Mapping[str, str], secrets: frozenset[str], start: Start) -> dict[str, str]:
        """The environment that it gets: `given` without what configures it otherwise and without the
        variables that hold keys of upstreams, which it has no use for; with what `start` sets. Its requests
        to this machine go past any proxy."""
        kept = {
            name: value
            for name, value in given.items()
            if name not in secrets and not name.startswith(self.own_prefixes)
        }
        for name in ("NO_PROXY", "no_proxy"):
            past = [each for each in (kept.get(name) or "").split(",") if each]
            kept[name] = ",".join(dict.fromkeys([*past, "127.0.0.1", "localhost", "::1"]))
        return kept | start.variables


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


def _start_codex(target: Target) -> Start:
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


def _shown_codex(base: str, model: str, keys: bool) -> str:
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
    start=_start_codex,
    shown=_shown_codex,
)


# Claude Code: its settings are environment variables, and a folder of its own in place of `~/.claude`.

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


def _start_claude(target: Target) -> Start:
    state = target.home / _STATE
    if not state.exists():  # its first start would ask for an account
        state.touch(mode=0o600)
        state.write_text(json.dumps({"hasCompletedOnboarding": True}), "utf-8")
    variables = _variables(target.base, target.model.id, target.key or "none")
    if target.model.limits_known:
        variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(target.model.context_window)
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(target.model.max_output_tokens)
    return Start([], variables | {"CLAUDE_CONFIG_DIR": str(target.home)})


def _shown_claude(base: str, model: str, keys: bool) -> str:
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
    start=_start_claude,
    shown=_shown_claude,
)


# The agents by their names, and what is installed of them.

AGENTS: Final = {agent.name: agent for agent in (CODEX, CLAUDE)}
_VERSION: Final = re.compile(r"(\d{1,6})\.(\d{1,6})\.\d{1,6}")
_PATIENCE: Final = 20.0  # seconds that an agent has to print its version
_READ: Final = 1000  # characters of what it prints


class Installed(NamedTuple):
    """A program that was found. `version` is (major, minor) and `shown` the whole, None and "" when it does
    not say."""

    path: str
    version: tuple[int, int] | None
    shown: str


def agent_named(name: str) -> CodingAgent:
    """Raises ValueError for a name that is not one of an agent, with the one that was probably meant."""
    if name not in AGENTS:
        raise ValueError(f"{name[:40]!r} is not one of: {', '.join(AGENTS)}{did_you_mean(name, AGENTS)}")
    return AGENTS[name]


def program_of(agent: CodingAgent, given: str | None = None) -> str | None:
    """The path of the agent's program, `given` or found as a shell finds it; None when there is none."""
    return shutil.which(given or agent.program)


def installed(agent: CodingAgent, environment: dict[str, str]) -> Installed | None:
    """The agent that is found, asked for its version in this environment; None when there is none."""
    path = program_of(agent)
    if path is None:
        return None
    try:
        asked = subprocess.run(
            [path, "--version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return Installed(path, None, "")
    found = _VERSION.search(asked.stdout.decode(errors="replace")[:_READ])
    if found is None:
        return Installed(path, None, "")
    return Installed(path, (int(found[1]), int(found[2])), found[0])
