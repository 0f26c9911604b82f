"""Coding agents: how each is found, configured and started."""

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
from openresponses_server.settings.files import as_toml, did_you_mean

# The parts of every coding agent.

KEY_VARIABLE: Final = "OPENRESPONSES_BRIDGE_KEY"
"""The variable with the server's key, for agents whose configuration can name one."""


class AgentTarget(Struct, frozen=True, kw_only=True):
    """The server, model and folders with which an agent is configured. `base` is the server's address without
    `/v1`; `key` is None if the server requires none; `catalog` has all models in Codex's format; `searches`
    is True if the server searches the web itself. `home` is the agent's folder, which is kept; `scratch` is
    removed when the agent ends."""

    base: str
    key: str | None
    model: EnrichedModelData
    catalog: list[dict[str, Any]]
    searches: bool
    home: Path
    scratch: Path


class LaunchOptions(Struct, frozen=True):
    """Arguments that precede those of the user, and variables that replace those of the environment."""

    arguments: list[str]
    variables: dict[str, str]


class CodingAgent(Struct, frozen=True, kw_only=True):
    """A coding agent that `run` can start."""

    name: str
    """The agent's name on the command line."""
    title: str
    program: str
    """The agent's command."""
    package: str
    """The npm package that installs the command."""
    minimum: tuple[int, int]
    """The first version, (major, minor), that is known to work."""
    tested: tuple[int, int]
    """The version, (major, minor), that the tests run."""
    own_prefixes: tuple[str, ...]
    """Environment variables with these prefixes configure the agent, and are not passed on."""
    resume: tuple[str, ...]
    """The agent's arguments for continuing the latest conversation."""
    configure: Callable[[AgentTarget], LaunchOptions]
    """Writes the agent's configuration."""
    config_text: Callable[[str, str, bool, bool], str]
    """Returns text for the user's own configuration, given the address of a server, a model, whether a key is
    needed, and whether the server searches the web."""

    @property
    def install(self) -> str:
        """The shell command that installs the agent."""
        return f"npm install -g {self.package}"

    def environment(
        self, environ: Mapping[str, str], secrets: frozenset[str], options: LaunchOptions
    ) -> dict[str, str]:
        """Return the environment of the agent's process: `environ` without variables that would configure it
        and without `secrets`, the variables with keys of upstreams; and the variables of `options`. Its
        requests to this machine bypass any proxy."""
        variables = {
            name: value
            for name, value in environ.items()
            if name not in secrets and not name.startswith(self.own_prefixes)
        }
        for name in ("NO_PROXY", "no_proxy"):
            past = [each for each in (variables.get(name) or "").split(",") if each]
            variables[name] = ",".join(dict.fromkeys([*past, "127.0.0.1", "localhost", "::1"]))
        return variables | options.variables


_PROVIDER: Final = "openresponses-bridge"
_CATALOG: Final = "models.json"
_SEARCHING: Final = {"web_search": "live"}  # else Codex's sandbox opens no pages
_ALWAYS: Final[dict[str, str | bool]] = {
    # requests to OpenAI and GitHub, which need an account
    "check_for_update_on_startup": False,
    "analytics.enabled": False,
    "feedback.enabled": False,
    "features.apps": False,
    "features.plugins": False,
    # the key is for Codex itself, not for the commands that the model runs
    f"shell_environment_policy.set.{KEY_VARIABLE}": "",
}


def _configure_codex(target: AgentTarget) -> LaunchOptions:
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
        **(_SEARCHING if target.searches else {}),
        **_ALWAYS,
    }
    arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={as_toml(value)}")]
    return LaunchOptions(arguments, {"CODEX_HOME": str(target.home), KEY_VARIABLE: target.key or "none"})


def _codex_config_text(base: str, model: str, keys: bool, searches: bool) -> str:
    provider = "\n".join(f"{name} = {as_toml(value)}" for name, value in _provider(base, keys).items())
    more = "".join(f"{name} = {as_toml(value)}\n" for name, value in _SEARCHING.items()) if searches else ""
    key, shown = "", ""
    if keys:  # passed to curl on its input, since other users can read command lines
        key = f"export {KEY_VARIABLE}=YOUR_KEY\nprintf 'authorization: Bearer %s' \"${KEY_VARIABLE}\" |\n  "
        shown = " -H @-"
    return f"""\
# In ~/.codex/config.toml:
model = {as_toml(model)}
model_provider = "{_PROVIDER}"
model_catalog_json = "bridge-models.json"  # its tools and limits are then the model's
{more}
[model_providers.{_PROVIDER}]
{provider}

# Then, in a shell:
{key}curl -f{shown} {shlex.quote(f"{base}/v1/models?client_version=1")} -o ~/.codex/bridge-models.json
codex
"""


def _provider(base: str, keys: bool) -> dict[str, str | bool]:
    provider: dict[str, str | bool] = {"name": _PROVIDER, "base_url": f"{base}/v1", "wire_api": "responses"}
    return provider | ({"env_key": KEY_VARIABLE} if keys else {})


CODEX: Final = CodingAgent(
    name="codex",
    title="Codex CLI",
    program="codex",
    package="@openai/codex",
    minimum=(0, 130),
    tested=(0, 169),
    own_prefixes=("CODEX_", "OPENAI_"),
    resume=("resume", "--last"),
    configure=_configure_codex,
    config_text=_codex_config_text,
)


# Claude Code is configured by environment variables, and by a folder that replaces `~/.claude`.

_STATE: Final = ".claude.json"
# Every variable that names a model: for small tasks, for sub-agents and for each tier.
_MODELS: Final = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_FABLE_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)
_QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",  # telemetry, updates, error reports
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # a line for Anthropic's billing at the beginning of each prompt
    # the number of tokens left, after each tool's result, gives each request another prefix for prompt caches
    "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "off",
}


def _configure_claude(target: AgentTarget) -> LaunchOptions:
    state = target.home / _STATE
    if not state.exists():  # else the first start asks for an account
        state.touch(mode=0o600)
        state.write_text(json.dumps({"hasCompletedOnboarding": True}), "utf-8")
    variables = _variables(target.base, target.model.id, target.key or "none")
    if target.model.limits_known:
        variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(target.model.context_window)
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(target.model.max_output_tokens)
    return LaunchOptions([], variables | {"CLAUDE_CONFIG_DIR": str(target.home)})


def _claude_config_text(base: str, model: str, keys: bool, searches: bool) -> str:
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
    minimum=(2, 0),
    tested=(2, 1),
    own_prefixes=("ANTHROPIC_", "CLAUDE_", "CLAUDECODE"),
    resume=("--continue",),
    configure=_configure_claude,
    config_text=_claude_config_text,
)


# Gemini CLI is configured by environment variables and by settings in a folder that replaces the home. Its
# own files there are kept.

_GEMINI_SETTINGS: Final = Path(".gemini", "settings.json")


def _gemini_settings(model: str) -> dict[str, Any]:
    # every configuration of a model extends `base`, so that small tasks and sub-agents use this model too
    override = {"match": {"model": "base"}, "modelConfig": {"model": model}}
    return {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "model": {"name": model},
        "modelConfigs": {"customOverrides": [override]},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }


def _gemini_variables(base: str, model: str, key: str) -> dict[str, str]:
    return {"GOOGLE_GEMINI_BASE_URL": base, "GEMINI_API_KEY": key, "GEMINI_MODEL": model}


def _configure_gemini(target: AgentTarget) -> LaunchOptions:
    path = target.home / _GEMINI_SETTINGS
    path.parent.mkdir(mode=0o700, exist_ok=True)
    settings = _settings_in(path)
    for name, section in _gemini_settings(target.model.id).items():
        previous = settings.get(name)
        settings[name] = {**previous, **section} if isinstance(previous, dict) else section
    path.write_text(json.dumps(settings, indent=2), "utf-8")
    variables = _gemini_variables(target.base, target.model.id, target.key or "none")
    return LaunchOptions([], variables | {"GEMINI_CLI_HOME": str(target.home)})


def _settings_in(path: Path) -> dict[str, Any]:
    """Return the settings in a file; none if it can't be read."""
    try:
        settings = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _gemini_config_text(base: str, model: str, keys: bool, searches: bool) -> str:
    variables = _gemini_variables(base, model, "YOUR_KEY" if keys else "none")
    exported = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    return f"""\
# In ~/.gemini/settings.json:
{json.dumps(_gemini_settings(model), indent=2, ensure_ascii=False)}

# Then, in a shell:
{exported}
gemini
"""


GEMINI: Final = CodingAgent(
    name="gemini",
    title="Gemini CLI",
    program="gemini",
    package="@google/gemini-cli",
    minimum=(0, 61),
    tested=(0, 61),
    own_prefixes=("GEMINI_", "GOOGLE_API_KEY", "GOOGLE_CLOUD_", "GOOGLE_GE", "GOOGLE_VERTEX_"),
    resume=("--resume", "latest"),
    configure=_configure_gemini,
    config_text=_gemini_config_text,
)


# opencode is configured by a variable with its configuration, in folders of its own.

_OPENCODE_QUIET: Final = {
    f"OPENCODE_DISABLE_{name}": "1"
    for name in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
}
_XDG: Final = ("CONFIG", "DATA", "STATE", "CACHE")


def _opencode_config(base: str, model: str, title: str, limit: dict[str, int], key: str) -> dict[str, Any]:
    entry = {"name": title, "tool_call": True, "reasoning": True} | ({"limit": limit} if limit else {})
    provider = {
        "npm": "@ai-sdk/openai",
        "name": _PROVIDER,
        "options": {"baseURL": f"{base}/v1", "apiKey": key},
        "models": {model: entry},
    }
    named = f"{_PROVIDER}/{model}"
    return {
        "model": named,
        "small_model": named,
        "share": "disabled",
        "enabled_providers": [_PROVIDER],
        "provider": {_PROVIDER: provider},
    }


def _configure_opencode(target: AgentTarget) -> LaunchOptions:
    model = target.model
    limit = {"context": model.context_window, "output": model.max_output_tokens} if model.limits_known else {}
    config = _opencode_config(target.base, model.id, model.name, limit, f"{{env:{KEY_VARIABLE}}}")
    variables = {"OPENCODE_CONFIG_CONTENT": json.dumps(config), KEY_VARIABLE: target.key or "none"}
    folders = {f"XDG_{name}_HOME": str(target.home / name.lower()) for name in _XDG}
    return LaunchOptions([], variables | folders | _OPENCODE_QUIET)


def _opencode_config_text(base: str, model: str, keys: bool, searches: bool) -> str:
    config = _opencode_config(base, model, model, {}, f"{{env:{KEY_VARIABLE}}}" if keys else "none")
    exported = f"export {KEY_VARIABLE}=YOUR_KEY\n" if keys else ""
    return f"""\
# In opencode.json of the project, or ~/.config/opencode/opencode.json:
{json.dumps(config, indent=2, ensure_ascii=False)}

# Then, in a shell:
{exported}opencode
"""


OPENCODE: Final = CodingAgent(
    name="opencode",
    title="opencode",
    program="opencode",
    package="opencode-ai",
    minimum=(1, 18),
    tested=(1, 18),
    own_prefixes=("OPENCODE_",),
    resume=("--continue",),
    configure=_configure_opencode,
    config_text=_opencode_config_text,
)


# The agents by name, and which of them are installed.

AGENTS: Final = {agent.name: agent for agent in (CODEX, CLAUDE, GEMINI, OPENCODE)}
_VERSION: Final = re.compile(r"(\d{1,6})\.(\d{1,6})\.\d{1,6}")
_TIMEOUT: Final = 20.0  # seconds for an agent to print its version
_READ: Final = 1000  # characters of its output that are read


class InstalledAgent(NamedTuple):
    """A program that was found. `version` is (major, minor) and `version_text` the whole text; None and "" if
    it prints none."""

    path: str
    version: tuple[int, int] | None
    version_text: str


def agent_named(name: str) -> CodingAgent:
    """Return the agent of this name. Raises ValueError, with a suggestion, for an unknown name."""
    if name not in AGENTS:
        raise ValueError(f"{name[:40]!r} is not one of: {', '.join(AGENTS)}{did_you_mean(name, AGENTS)}")
    return AGENTS[name]


def program_of(agent: CodingAgent, program: str | None = None) -> str | None:
    """Return the path of the agent's program, `program` or found in PATH; None if there is none."""
    return shutil.which(program or agent.program)


def find_installed(agent: CodingAgent, environment: dict[str, str]) -> InstalledAgent | None:
    """Find the agent, and its version as it prints it in this environment; None if it is not installed."""
    path = program_of(agent)
    if path is None:
        return None
    try:
        process = subprocess.run(
            [path, "--version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return InstalledAgent(path, None, "")
    match = _VERSION.search(process.stdout.decode(errors="replace")[:_READ])
    if match is None:
        return InstalledAgent(path, None, "")
    return InstalledAgent(path, (int(match[1]), int(match[2])), match[0])
