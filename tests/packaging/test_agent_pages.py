"""The commands of the pages on coding agents, unchanged. The agents here are programs that ask their server
for one answer; tests/clients has the real ones."""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.document_reader import Reader
from tests.support.documents import blocks_of, commands_of
from tests.support.forked import fork_server
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk

AGENT = """\
#!/bin/sh
case "$1${0##*/}" in --versioncodex) echo 0.150.0; exit;; --versionclaude) echo 2.1.0; exit;; esac
echo "arguments: $*"
url="$ANTHROPIC_BASE_URL/v1/messages"
said='"max_tokens":9,"messages":[{"role":"user","content":"Hi"}]'
if [ "${0##*/}" = codex ]; then
    given=$(cat "${CODEX_CONFIG:-/dev/null}"; echo "$*")
    url=$(echo "$given" | sed -n 's/.*base_url *= *"\\([^"]*\\)".*/\\1/p')/responses
    said='"input":"Hi"'
fi
curl -s "$url" -H "authorization: Bearer ${ANTHROPIC_AUTH_TOKEN:-$OPENRESPONSES_BRIDGE_KEY}" \\
    -H 'content-type: application/json' \\
    -d '{"model":"'$MODEL'",'"$said"'}'
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        for model in ("qwen3", "large", "local"):
            scripted.scripts[model] = Script([chunk(content="Hello there."), chunk("stop"), DONE])
        yield scripted


@pytest.fixture
def reader(tmp_path: Path, upstream: ScriptedUpstream) -> Reader:
    result = Reader(Path(sys.executable), tmp_path, fork_server())
    (tmp_path / "bridge.toml").write_text(f'[[upstreams]]\nurl = "{upstream.url}"\n')
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("codex", "claude"):
        (programs / name).write_text(AGENT)
        (programs / name).chmod(0o755)
    return result


PAGES = ("docs/clients/codex.md", "docs/clients/claude-code.md", "docs/coding-agents.md")
OTHERS = "llama-server "  # a program of another project


def commands() -> list[str]:
    """The commands of the pages, each once, because some pages share them."""
    blocks = [block for page in PAGES for block in blocks_of(page) if block.language == "sh"]
    unique = dict.fromkeys(each for block in blocks for each in commands_of(block))
    return [each for each in unique if not each.startswith(OTHERS)]


@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_pages(command: str, reader: Reader, upstream: ScriptedUpstream) -> None:
    variables = {"PATH": f"{reader.folder / 'bin'}:{reader.path}", "MY_KEY": "k", "MODEL": "qwen3"}
    line = command.replace("--upstream ollama", f"--upstream {upstream.url}")
    for address in ("https://host/v1", "http://127.0.0.1:8090/v1"):
        line = line.replace(address, upstream.url)
    line += f" --port {reader.port}" if " doctor " in command else ""
    if command.startswith("ANTHROPIC_"):
        with reader.serving(f"openresponses-bridge serve --upstream {upstream.url} --store memory://"):
            shown = reader.run(line, **variables)
    else:
        model = next((name for name in ("large", "local") if f" {name}" in command), "qwen3")
        shown = reader.run(line, **variables | {"MODEL": model})
    if "--print-config" in command:
        of_agents = {"codex": 'model = "qwen3"', "claude": '"CLAUDE_CODE_SUBAGENT_MODEL": "qwen3"'}
        assert of_agents[command.split()[2]] in shown
        assert "serve --upstream" in shown
    elif " doctor " in command:
        assert "MISSING" not in shown
    else:
        assert "Hello there." in shown, command
    if " -- " in command:
        assert f"{command.split(' -- ')[1]}".replace('"', "") in shown


def test_the_configuration_of_the_page_reaches_the_server(reader: Reader, upstream: ScriptedUpstream) -> None:
    (config,) = (block.code for block in blocks_of("docs/clients/codex.md") if block.language == "toml")
    assert tomllib.loads(config)["model_providers"]["bridge"]["wire_api"] == "responses"
    (reader.folder / "config.toml").write_text(reader.placed(config))
    with reader.serving(f"openresponses-bridge serve --upstream {upstream.url} --store memory://"):
        assert "Hello there." in reader.run("./bin/codex", CODEX_CONFIG="config.toml", MODEL="qwen3")
