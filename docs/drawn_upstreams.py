"""docs/upstreams.md: the known upstreams, from their profiles, and what becomes of fields there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from openresponses_bridge.dialects.base import OTHER, Cause
from openresponses_bridge.dialects.base.refusals import STATUSES, TABLE, Row
from openresponses_server.upstreams import profiles
from openresponses_server.upstreams.dialects import DIALECTS
from openresponses_server.upstreams.profiles import Profile, options_of

FOLDER = Path(profiles.__file__).parent
_LOSSES = ("loss", "refused")
_VARIABLE = re.compile(r"\$\{(\w+)\}")  # one without a default


def _remark(name: str) -> str:
    """The comment at the head of the profile's file."""
    lines = (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    comments = [
        line.lstrip("# ") for line in lines[: next(i for i, line in enumerate(lines) if line[:1] != "#")]
    ]
    return " ".join(comments)


def _serving(name: str, found: Profile) -> list[str]:
    """Commands from nothing to a server in front of it."""
    lines = ["```sh"]
    if found.start:
        lines.append(found.start)
    needed = {name for each in found.dialects.values() for name in _VARIABLE.findall(each.url or "")}
    lines += [f"export {name}=…" for name in (*sorted(needed), found.api_key_env) if name]
    port = " --port 8090" if any(":8080" in (each.url or "") for each in found.dialects.values()) else ""
    return [*lines, f"openresponses-bridge serve --upstream {name}{port}", "```"]


def _not_sent(name: str, found: Profile) -> list[str]:
    """What its dialects do not take, beyond what is common to all of them."""
    lines = []
    for dialect, spoken in found.dialects.items():
        side = DIALECTS[dialect].side
        table = side.outcomes(options_of(side.options, spoken.options))
        usual = side.outcomes(side.options())
        fields = [
            field
            for field, outcome in table.items()
            if field != OTHER and outcome.kind in _LOSSES and usual[field].kind not in _LOSSES
        ]
        which = "" if len(found.dialects) == 1 else f" with `{dialect}`"
        if fields:
            lines.append(f"- Losses here{which}: {', '.join(f'`{field}`' for field in sorted(fields))}.")
    return lines


def _section(name: str) -> list[str]:
    profile = profiles.profile(name)
    lines = [f"## {profile.title}", "", _remark(name), "", *_serving(name, profile), ""]
    if profile.tried:
        lines.append(f"- Tried: {profile.tried}")
    lines += [f"- Set {each}" for each in profile.advice]
    for dialect, spoken in profile.dialects.items():
        default = (
            ", unless another is named" if dialect == profile.dialect and len(profile.dialects) > 1 else ""
        )
        options = ", ".join(
            f"`{key} = {json.dumps(value)}`" for key, value in spoken.options.items() if key != "omit"
        )
        address = f"`{spoken.url}`" if spoken.url else "a process of its own"
        ways = "; streamed requests go over [WebSockets](routing.md#websockets-to-an-upstream)"
        way = ways if spoken.websocket else ""
        lines.append(f"- `{dialect}`{default}: {address}" + (f"; {options}" if options else "") + way)
        for pattern, fields in spoken.model_options.items():
            shown = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in fields.items())
            lines.append(f"  - `{pattern}`: {shown}")
    if profile.api_key_header:
        lines.append(f"- Its key is sent in `{profile.api_key_header}`.")
    if profile.api_key_command:
        lines.append(f"- Its key is printed by `{' '.join(profile.api_key_command)}`.")
    return [*lines, *_not_sent(name, profile), ""]


def _refusal(row: Row) -> str:
    """A row of the table of refusals."""
    message = row.words or ", ".join(row.codes)
    shown = message.replace("|", "\\|").replace("`", "'")
    statuses = ", ".join(map(str, row.statuses or STATUSES.get(row.cause, ()))) or "any"
    return f"| {row.provider} | `{shown}` | {statuses} | {row.seen} |"


def _refusals() -> list[str]:
    """The table of refusals, by what they are about."""
    lines = [
        "## What refusals mean",
        "",
        "The server recognises by these words and codes why an upstream has refused a request, whatever",
        "form its error has. It uses the cause for [failover](routing.md#several-routes-for-a-model), to",
        "repeat a request without what was refused, and for the codes that clients read. `…` stands for a",
        "few other words, `{limit}` and `{given}` for numbers of tokens. An error in other words reaches",
        "the client with its own words, and its status decides. Words alone put no key out of use, since a",
        "server may repeat those of a request.",
        "",
    ]
    for cause in Cause:
        lines += [
            f"### About {cause.value}",
            "",
            "| who | says | under | seen in |",
            "| --- | --- | --- | --- |",
        ]
        lines += [_refusal(row) for row in TABLE if row.cause is cause]
        lines.append("")
    return lines


def upstreams_page() -> str:
    """The page of upstreams."""
    lines = [
        "# Upstreams",
        "",
        "For operators: the providers and engines that are known by name.",
        "",
        "`make docs` draws this page from `server/openresponses_server/upstreams/profiles/`. `--upstream",
        "NAME` selects one of these upstreams; `--upstream URL` any other that speaks Chat Completions,",
        "Anthropic's Messages (`--dialect anthropic`), Responses (`--dialect responses`), Gemini's API",
        "(`--dialect gemini`), Google's Interactions (`--dialect interactions`) or Converse (`--dialect",
        "bedrock`). `--model NAME` sends all requests to that model; without it, clients name the model.",
        "[routing.md](routing.md#upstreams) covers several upstreams at once, aliases, failover and your",
        "own profiles; [fields.md](fields.md) how each dialect handles each field of a request;",
        "[settings.md](settings.md) the options.",
        "",
        "*Losses here* are fields that other upstreams of the dialect accept. Options for single models are",
        "listed below those of their upstream. If a model refuses images, the server repeats the request",
        "without them, reports that as a loss, and sends the model no images for ten minutes; a model with",
        "`images = false` in `[models]` never gets any.",
        "",
        "The server finds what it knows about a model (limits, images, levels of effort) by the model's",
        "name, however a provider writes it. `openresponses-bridge models sync api.json` updates these",
        "facts from your copy of a dump of models.dev, in the file that the setting `models_file` names; it",
        "downloads nothing. The file also has [prices](keys.md#costs), which apply to exactly these names.",
        "",
        "```sh",
        "openresponses-bridge doctor --upstream ollama --model qwen3  # does it answer and have the model?",
        "```",
        "",
        "`doctor` recognises llama.cpp, vLLM, SGLang, Ollama, LM Studio and LiteLLM by their answers, at",
        "any address, and says what they lack for a coding agent: a template with tools, a flag, a larger",
        "context. It sends llama.cpp and vLLM one request for a single token.",
        "",
        "If a provider wants one id for each conversation, `session_headers` sends it in a header, where",
        "`{session}` stands for 32 characters:",
        "",
        "```toml",
        "[[upstreams]]",
        'profile = "vllm"',
        'session_headers = { x-session-id = "ses_{session}" }',
        "```",
        "",
        "The server derives the id, with its sealing key, from the client's key and the session. The",
        "session is the `conversation`, the `prompt_cache_key`, the session that Codex and Claude Code name",
        "in headers or `metadata.user_id`, the header `openresponses-conversation`, or else the first",
        "response of the chain that the request continues. The id stays the same after a restart and on",
        "every worker with that sealing key, differs by client's key and upstream, and reveals nothing",
        "about its sources. A request that names no session and continues no stored response has an id of",
        "its own.",
        "",
    ]
    for name in profiles.names():
        lines += _section(name)
    lines += _refusals()
    return "\n".join(lines).rstrip() + "\n"
