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
    said = [line.lstrip("# ") for line in lines[: next(i for i, line in enumerate(lines) if line[:1] != "#")]]
    return " ".join(said)


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
    found = profiles.profile(name)
    lines = [f"## {found.title}", "", _remark(name), "", *_serving(name, found), ""]
    if found.tried:
        lines.append(f"- Tried: {found.tried}")
    lines += [f"- Set {each}" for each in found.advice]
    for dialect, spoken in found.dialects.items():
        default = ", unless another is named" if dialect == found.dialect and len(found.dialects) > 1 else ""
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
    if found.api_key_header:
        lines.append(f"- Its key is sent in `{found.api_key_header}`.")
    if found.api_key_command:
        lines.append(f"- Its key is printed by `{' '.join(found.api_key_command)}`.")
    return [*lines, *_not_sent(name, found), ""]


def _refusal(row: Row) -> str:
    """A row of the table of refusals."""
    said = row.words or ", ".join(row.codes)
    shown = said.replace("|", "\\|").replace("`", "'")
    statuses = ", ".join(map(str, row.statuses or STATUSES.get(row.cause, ()))) or "any"
    return f"| {row.provider} | `{shown}` | {statuses} | {row.seen} |"


def _refusals() -> list[str]:
    """The table of refusals, by what they are about."""
    lines = [
        "## What refusals mean",
        "",
        "By these words and codes the server knows what an upstream has refused a request for, whatever",
        "form its error has: for [failover](routing.md#several-routes-for-a-model), for what is left out and",
        "asked again, and for the codes that clients read. `…` are a few other words, `{limit}` and",
        "`{given}` numbers of tokens. An error in other words keeps them, and its status decides. Words",
        "alone put no key out of use, since a server may repeat those of a request.",
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
        "Drawn by `make docs` from `server/openresponses_server/upstreams/profiles/`. `--upstream NAME`",
        "is one of these, `--upstream URL` anything else that speaks Chat Completions, Anthropic's Messages",
        "(`--dialect anthropic`), Responses (`--dialect responses`), Gemini's API",
        "(`--dialect gemini`), Google's Interactions (`--dialect interactions`) or",
        "Converse (`--dialect bedrock`).",
        "`--model NAME` sends all requests to that",
        "model; without, clients name it. [routing.md](routing.md#upstreams) has several upstreams at once,",
        "aliases, failover and profiles of your own; [fields.md](fields.md) what becomes of each field of",
        "a request by dialect, [settings.md](settings.md) what the options mean. *Losses here* are fields",
        "that others of the dialect take. Options of single models stand below those of their upstream. A",
        "model that refuses images is asked once more without them, which is a loss, and gets none for ten",
        "minutes; one with `images = false` in `[models]` never gets any.",
        "",
        "What the server knows of models (limits, images, levels of effort) is found by their names, however",
        "a provider writes them. `openresponses-bridge models sync api.json` brings that up to date from a",
        "dump of models.dev that you have, in a file that the setting `models_file` names, and fetches",
        "nothing. The file also has [prices](keys.md#costs), which count for exactly these names.",
        "",
        "```sh",
        "openresponses-bridge doctor --upstream ollama --model qwen3  # does it answer, has it the model?",
        "```",
        "",
        "`doctor` knows llama.cpp, vLLM, SGLang, Ollama, LM Studio and LiteLLM by their own answers,",
        "whatever the address, and says what they lack for a coding agent: a template with tools, a flag, a",
        "larger context. It sends llama.cpp and vLLM one request for a single token.",
        "",
        "A provider that wants one id for each conversation gets it in a header of `session_headers`, where",
        "`{session}` stands for 32 characters:",
        "",
        "```toml",
        "[[upstreams]]",
        'profile = "vllm"',
        'session_headers = { x-session-id = "ses_{session}" }',
        "```",
        "",
        "The id is made with this server's sealing key from the client's key and the session: the",
        "`conversation`, the `prompt_cache_key`, the session that Codex and Claude Code name in headers or",
        "`metadata.user_id`, the header `openresponses-conversation`, else the first response of the chain",
        "that the request continues. It stays the same after a restart and on every worker with that sealing",
        "key, differs by client's key and upstream, and shows nothing of what it was made of. A request that",
        "names no session and continues no stored response has an id of its own.",
        "",
    ]
    for name in profiles.names():
        lines += _section(name)
    lines += _refusals()
    return "\n".join(lines).rstrip() + "\n"
