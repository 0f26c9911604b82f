"""docs/upstreams.md: the known upstreams, from their profiles, and what becomes of fields there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from openresponses_bridge.dialects.base import OTHER
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
        lines.append(f"- `{dialect}`{default}: {address}" + (f"; {options}" if options else ""))
        for pattern, fields in spoken.model_options.items():
            shown = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in fields.items())
            lines.append(f"  - `{pattern}`: {shown}")
    if found.api_key_header:
        lines.append(f"- Its key is sent in `{found.api_key_header}`.")
    if found.api_key_command:
        lines.append(f"- Its key is printed by `{' '.join(found.api_key_command)}`.")
    return [*lines, *_not_sent(name, found), ""]


def upstreams_page() -> str:
    """The page of upstreams."""
    lines = [
        "# Upstreams",
        "",
        "Drawn by `make docs` from `server/openresponses_server/upstreams/profiles/`. `--upstream NAME`",
        "is one of these, `--upstream URL` anything else that speaks Chat Completions, Anthropic's Messages",
        "(`--dialect anthropic`), Responses (`--dialect responses`) or Gemini's API (`--dialect gemini`).",
        "`--model NAME` sends all requests to that",
        "model; without, clients name it. [server.md](server.md#upstreams) has several upstreams at once,",
        "aliases, failover and profiles of your own; [fields.md](fields.md) what becomes of each field of",
        "a request by dialect, [settings.md](settings.md) what the options mean. *Losses here* are fields",
        "that others of the dialect take. Options of single models stand below those of their upstream. A",
        "model that refuses images is asked once more without them, which is a loss, and gets none for ten",
        "minutes; one with `images = false` in `[models]` never gets any.",
        "",
        "What the server knows of models (limits, images, levels of effort) is found by their names, however",
        "a provider writes them. `openresponses-bridge models sync api.json` brings that up to date from a",
        "dump of models.dev that you have, in a file that the setting `models_file` names, and fetches",
        "nothing. The file also has [prices](server.md#costs), which count for exactly these names.",
        "",
        "```sh",
        "openresponses-bridge doctor --upstream ollama --model qwen3  # does it answer, has it the model?",
        "```",
        "",
        "`doctor` knows llama.cpp, vLLM, SGLang, Ollama, LM Studio and LiteLLM by their own answers,",
        "whatever the address, and says what they lack for a coding agent: a template with tools, a flag, a",
        "larger context. It sends llama.cpp and vLLM one request for a single token.",
        "",
    ]
    for name in profiles.names():
        lines += _section(name)
    return "\n".join(lines).rstrip() + "\n"
