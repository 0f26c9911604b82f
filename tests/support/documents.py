"""The code blocks of all pages, each with the test that runs it or the reason why no test does.

A page that is missing here fails `tests/test_docs_blocks.py`: give each heading that has a block a test that
reads the page, as `tests/….py::name`, or a reason. `Heading (sh)` means the blocks in this language under the
heading, `*` the rest of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, NamedTuple

from tests.support.shared import REPOSITORY

ADDRESS: Final = "http://127.0.0.1:8080"
"""The server's address in the pages."""

_BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
SHOWN: Final = {"text", "mermaid"}
"""Languages of blocks that are only shown and not run; pages that have them are generated and compared as a
whole."""
_DRAWN = {"docs/rules.md", "docs/states.md"}

_PYTHON = "tests/test_docs.py::test_the_python_of_the_pages_runs"
_JOURNEYS = "tests/packaging/test_journeys.py"
_BLOCKS = "tests/test_docs_blocks.py"
_WHEELS = "tests/packaging/test_wheel.py"
_CLIENTS = "tests/clients/test_pages.py"
_AGENTS = "tests/packaging/test_agent_pages.py"
_APPROVALS = "tests/server/upstreams/test_codex_approvals.py"
_CONTAINER = "tests/packaging/test_container.py"
_CONFIGS = f"{_BLOCKS}::test_configs_of_the_pages_can_be_used"

_HOSTED = "tests/cli/commands/test_cli_agent_hosted.py"

HOW: Final[dict[str, dict[str, str]]] = {
    "README.md": {
        "openresponses-bridge": "not in a test: it sets up a checkout, as CI does before every run",
        "Emit from your own model": f"{_JOURNEYS}::test_emit_from_your_own_model",
        "Put Codex, Claude Code, VS Code or an SDK in front of any model": (
            f"{_JOURNEYS}::test_put_clients_in_front_of_any_model"
        ),
        "Keep and resume sessions": f"{_JOURNEYS}::test_keep_and_resume_sessions",
        "Test your own server": f"{_JOURNEYS}::test_test_your_own_server",
        "Run an agent in the terminal": "tests/cli/commands/test_cli_agent.py::test_the_readmes_commands",
    },
    "bridge/README.md": {"*": f"{_WHEELS}::test_the_library_alone"},
    "server/README.md": {"*": f"{_WHEELS}::test_the_first_command_of_the_readme_is_the_one_that_is_tried"},
    "CONTRIBUTING.md": {"*": f"{_BLOCKS}::test_commands_of_contributors_are_there"},
    "docs/agent.md": {
        "In the terminal": "tests/cli/commands/test_cli_agent.py::test_the_demo_model_needs_nothing",
        "Tools that the server runs": f"{_HOSTED}::test_the_command_of_the_page",
        "*": _PYTHON,
    },
    "docs/backend.md": {"*": _PYTHON},
    "docs/backup.md": {"*": "tests/server/store/test_backup.py::test_restored_store_answers_as_before"},
    "docs/capacity.md": {
        "A long load": "tests/load/test_load.py::test_the_commands_of_the_page_can_be_given",
        "What each thing costs": "tests/benchmarks/test_fleet.py::test_the_commands_of_the_page_can_be_given",
    },
    "docs/benchmarks.md": {"*": "tests/test_plots.py::test_the_commands_of_the_page_can_be_given"},
    "docs/clients/agents.md": {
        "Python": f"{_CLIENTS}::test_python",
        "JavaScript": f"{_CLIENTS}::test_javascript",
    },
    "docs/clients/ai-sdk.md": {"*": f"{_CLIENTS}::test_javascript"},
    "docs/clients/bedrock.md": {
        "boto3 and other SDKs of AWS (python)": f"{_CLIENTS}::test_python",
        "Anthropic's SDK and Claude Code (python)": f"{_CLIENTS}::test_python",
        "Anthropic's SDK and Claude Code (sh)": (
            "not in a test: tests/clients/test_bedrock_clients.py starts it with these variables"
        ),
        "*": "not in a test: tests/server/api/test_bedrock.py sends such a key over TLS",
    },
    "docs/clients/claude-code.md": {"*": f"{_AGENTS}::test_the_commands_of_the_pages"},
    "docs/clients/codex.md": {
        "Codex (toml)": f"{_AGENTS}::test_the_configuration_of_the_page_reaches_the_server",
        "*": f"{_AGENTS}::test_the_commands_of_the_pages",
    },
    **{
        f"docs/clients/{client}.md": {
            "*": "not in a test: tests/clients/test_coding_clients.py runs it with these settings"
        }
        for client in ("cline", "copilot-cli", "opencode", "pi", "qwen-code")
    },
    **{
        f"docs/clients/{client}.md": {"*": "not run: the program can't be had from a registry of packages"}
        for client in ("goose", "zed")
    },
    "docs/clients/gateways.md": {"*": _CONFIGS},
    "docs/clients/index.md": {"*": _CONFIGS},
    "docs/clients/gemini-cli.md": {
        "google-genai": f"{_CLIENTS}::test_python",
        "*": "not in a test: tests/clients/test_run.py runs it with these settings",
    },
    "docs/clients/langchain.md": {"*": f"{_CLIENTS}::test_python"},
    "docs/clients/openai.md": {
        "Python": f"{_BLOCKS}::test_python_for_the_sdk_runs",
        "JavaScript": f"{_CLIENTS}::test_javascript",
    },
    "docs/clients/pydantic-ai.md": {"*": f"{_CLIENTS}::test_python"},
    "docs/clients/vscode.md": {
        "*": "tests/server/vscode/test_vscode_package.py::test_the_page_installs_the_file_that_is_written"
    },
    "docs/codex.md": {
        "Approvals": f"{_APPROVALS}::test_the_answer_of_the_page_is_taken",
        "*": f"{_BLOCKS}::test_configs_of_the_pages_can_be_used",
    },
    "docs/coding-agents.md": {"*": f"{_AGENTS}::test_the_commands_of_the_pages"},
    "docs/conformance.md": {"*": "tests/cli/commands/test_conform.py::test_the_commands_of_the_page"},
    "docs/containers.md": {
        "Helm": "tests/packaging/test_chart.py::test_the_command_of_the_page_gives_values_that_there_are",
        "*": f"{_BLOCKS}::test_the_commands_for_containers_are_those_of_the_files",
    },
    "docs/deploying.md": {
        "One host: socket activation": "not run: two units side by side, which need a systemd",
        "*": f"{_BLOCKS}::test_what_deploying_shows_is_in_the_files",
    },
    "docs/observing.md": {
        "A dashboard": "not run: a part of Prometheus' own configuration, which needs a Prometheus",
        "Spans": "not run: it installs OpenTelemetry's own program; tests/server/observation has its library",
        "Traces": "tests/server/observation/traces/test_page.py::test_the_page_on_traces_is_true",
    },
    "docs/dialects.md": {"*": "tests/test_new_dialect.py::test_it_is_held_to_what_all_dialects_are_held_to"},
    "docs/library.md": {"*": _PYTHON},
    "docs/keys.md": {
        "Costs": "tests/server/upstreams/test_prices.py::test_the_config_of_the_page_can_be_used",
        "Keys that are managed": (
            "tests/server/api/test_managed_keys.py::test_the_commands_of_the_pages_can_be_given"
        ),
        "Tokens of an identity provider": (
            "tests/server/http/test_tokens.py::test_the_config_of_the_page_can_be_used"
        ),
    },
    "docs/mcp.md": {"*": "tests/server/hosted/test_mcp_responses.py::test_the_blocks_of_the_page"},
    "docs/prompts.md": {"*": _PYTHON},
    "docs/proxies.md": {
        "Does it buffer?": f"{_CONTAINER}::test_a_stream_passes_nginx_as_it_is_made",
        "*": f"{_BLOCKS}::test_what_deploying_shows_is_in_the_files",
    },
    "docs/recording.md": {"*": "tests/cli/commands/test_cli_record.py::test_the_page_on_recordings_is_true"},
    "docs/requests.md": {
        "Prompts": "tests/server/requests/test_prompts.py::test_the_example_of_the_page_works",
        "*": _CONFIGS,
    },
    "docs/rotating-keys.md": {
        "*": "tests/server/api/test_managed_keys.py::test_the_commands_of_the_pages_can_be_given"
    },
    "docs/routing.md": {"*": _CONFIGS},
    "docs/sessions.md": {"*": f"{_BLOCKS}::test_python_for_the_sdk_runs"},
    "docs/start.md": {
        "A real model": f"{_JOURNEYS}::test_a_real_model",
        "*": f"{_JOURNEYS}::test_start_in_five_minutes",
    },
    "docs/streams.md": {"*": "tests/server/vscode/test_provider.py::test_the_program_of_the_page_runs"},
    "docs/terminal.md": {"*": "tests/cli/commands/test_page.py::test_its_commands_run"},
    "docs/testing.md": {
        "A decoder (js)": "tests/clients/test_decoders.py::test_the_javascript_of_the_guide",
        "A decoder (sh)": "tests/cli/commands/test_corpus.py::test_the_commands_of_the_guide_run",
        "A decoder (json)": "tests/cli/commands/test_corpus.py::test_the_commands_of_the_guide_run",
        "*": "tests/cli/test_pytest_plugin.py::test_the_examples_of_the_guide_pass",
    },
    "docs/troubleshooting.md": {"*": "tests/cli/commands/test_troubleshooting.py::test_its_commands_run"},
    "docs/upstreams.md": {"*": f"{_BLOCKS}::test_every_upstream_of_the_page_can_be_configured"},
}


class Block(NamedTuple):
    """A code block of a page, with the nearest heading above it."""

    page: str
    heading: str
    language: str
    code: str


def key_of(block: Block) -> str | None:
    """The key in `HOW` for a block, given the keys of its page; None if there is none."""
    rows = HOW.get(block.page, {})
    keys = (f"{block.heading} ({block.language})", block.heading, "*")
    return next((key for key in keys if key in rows), None)


def pages() -> list[str]:
    """The pages of the repository that people read, from its root."""
    paths: list[Path] = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    paths += [
        REPOSITORY / "bridge" / "README.md",
        REPOSITORY / "server" / "README.md",
        REPOSITORY / "snapshots" / "README.md",
        REPOSITORY / "server/openresponses_server/vscode/extension/README.md",
    ]
    paths += sorted((REPOSITORY / "docs").glob("*.md")) + sorted((REPOSITORY / "docs").glob("clients/*.md"))
    return [path.relative_to(REPOSITORY).as_posix() for path in paths]


def run_python(code: str, page: str, base: str = ADDRESS) -> None:
    """Run a page's code against the server at `base`, and close the client that the code makes."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code.replace(ADDRESS, base), page, "exec"), names)
    if (client := names.get("client")) is not None:
        client.close()


def blocks_of(page: str) -> Iterator[Block]:
    """The code blocks of one page; blocks that are only shown are left out if the page is generated."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        headings = _HEADING.findall(_BLOCK.sub("", text[: match.start()]))
        if page in _DRAWN and match[2] in SHOWN:
            continue
        yield Block(page, headings[-1] if headings else "", match[2], dedent(match[3]))


def commands_of(block: Block) -> list[str]:
    """The commands of a block without comments, one per line."""
    lines = block.code.replace("\\\n", " ").splitlines()
    return [command for line in lines if (command := re.sub(r"(^|\s+)# .*", "", line).strip())]
