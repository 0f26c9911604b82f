"""Each block of code in the documents is run by a test or has its reason; commands are those there are."""

import ast
import json
import plistlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import click
import pytest
import yaml

from openresponses_cli.commands.cli import main
from openresponses_server.requests.forwarding import ENDPOINTS
from openresponses_server.settings import Settings, WireKeys, load_settings
from openresponses_server.settings.data_folder import ServerSealer
from openresponses_server.settings.files import hashed
from openresponses_server.upstreams import profiles
from openresponses_server.upstreams.routing.models import build_router
from tests.support.certificates import Authority
from tests.support.document_blocks import commands
from tests.support.documents import ADDRESS, HOW, blocks_of, commands_of, key_of, pages, run_python
from tests.support.serving import serving
from tests.support.shared import REPOSITORY

NAME = "openresponses-bridge"
DEPLOY = REPOSITORY / "docs" / "deploy"
# programs of others that the documents use
FOREIGN = {
    *(
        "claude",
        "code",
        "curl",
        "docker",
        "echo",
        "export",
        "helm",
        "install",
        "kubectl",
        "opentelemetry-instrument",
        "pg_dump",
        "pg_restore",
        "pip",
        "systemctl",
        "uvicorn",
    ),
    *("cline", "copilot", "gemini", "goose", "pi", "qwen"),
    *(
        "codex",
        "gcloud",
        "litellm",
        "llama-server",
        "lms",
        "ollama",
        "python3",
        "transformers",
        "uvx",
        "vllm",
    ),
}
SHELL = [block for page in pages() for block in blocks_of(page) if block.language == "sh"]
_TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


def test_each_block_is_run_or_has_its_reason() -> None:
    keys = {block: key_of(block) for page in pages() for block in blocks_of(page)}
    missing = [f"{block.page}: {block.heading} ({block.language})" for block, key in keys.items() if not key]
    assert missing == [], "say in tests/support/documents.py what runs these"
    rows = {(page, key) for page, how in HOW.items() for key in how}
    assert rows - {(block.page, key) for block, key in keys.items()} == set()


ROWS = sorted({(page, how) for page, rows in HOW.items() for how in rows.values()})


@pytest.mark.parametrize(("page", "how"), ROWS)
def test_what_is_named_is_a_test_that_reads_the_page_or_a_reason(page: str, how: str) -> None:
    match = _TEST.fullmatch(how)
    if match is None:
        assert re.match("not (in a test|run): .{20}", how)
        assert [
            path for path in re.findall(r"tests/[\w/.]*\w", how) if not (REPOSITORY / path).exists()
        ] == []
        return
    tree = ast.parse((REPOSITORY / match[1]).read_bytes())
    assert reads(tree, match[2], page)


def reads(tree: ast.Module, name: str, page: str) -> bool:
    """Whether the test, or what it uses of its module, names the page or the folder that it is in."""
    defined: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    waiting, seen = [name], set()
    while waiting:
        current = waiting.pop()
        if current in seen or current not in defined:
            continue
        seen.add(current)
        for node in ast.walk(defined[current]):
            if isinstance(node, ast.Name | ast.arg):
                waiting.append(node.id if isinstance(node, ast.Name) else node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                folder = node.value.endswith("/") and page.startswith(node.value)
                if node.value == page or folder:
                    return True
    return False


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def test_a(): read('docs/a.md')", True),
        ("PAGE = 'docs/a.md'\ndef text(): return read(PAGE)\ndef test_a(): text()", True),
        ("@pytest.fixture\ndef text(): return read('docs/')\ndef test_a(text): pass", True),
        ("def test_a(): read('docs/b.md')\ndef test_b(): read('docs/a.md')", False),
        ("def test_a():\n    'It is about docs/a.md.'", False),
        ("def test_b(): read('docs/a.md')", False),
    ],
)
def test_a_test_that_reads_another_page_is_found(code: str, found: bool) -> None:
    assert reads(ast.parse(code), "test_a", "docs/a.md") == found


def words_of(command: str) -> Iterator[list[str]]:
    """The words of each program that a line of the shell starts, without assignments before it."""
    for part in re.split(r"\s(?:\||&&|>)\s", command):
        words = shlex.split(part)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words:
            yield words


@pytest.mark.parametrize("page", sorted({block.page for block in SHELL}))
def test_commands_are_those_of_the_command_line(page: str) -> None:
    for command in (each for block in SHELL if block.page == page for each in commands_of(block)):
        for words in words_of(command):
            if NAME in words[:4] and words[0] in (NAME, "uvx"):
                understood(main, NAME, words[words.index(NAME) + 1 :])
            elif words[0] == "make":
                assert re.search(rf"^{words[1]}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE), (
                    command
                )
            elif not words[0].startswith(".venv/"):
                assert words[0] in FOREIGN or command.startswith(words[0] + ">") or "." in words[0], command


def understood(
    command: click.Command, name: str, arguments: list[str], parent: click.Context | None = None
) -> None:
    """Click's own parser takes these words, and options have values that they may have.

    Its contexts are the real command line's: a command keeps the `--help` that it is first asked for.
    """
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    values, left, _ = command.make_parser(context).parse_args(list(arguments))
    for option in command.params:
        if isinstance(option.type, click.Choice) and isinstance(values.get(option.name or ""), str):
            option.type.convert(values[option.name or ""], option, context)
    if isinstance(command, click.Group) and left:
        inner = command.get_command(context, left[0])
        assert inner is not None, f"{name} has no command {left[0]}"
        understood(inner, f"{name} {left[0]}", left[1:], context)


@pytest.mark.parametrize("wrong", ["serve --prot 1", "replay x --to nowhere", "begin", "db vacuum"])
def test_a_command_that_is_not_there_is_found(wrong: str) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        understood(main, NAME, wrong.split())


@pytest.mark.parametrize("page", ["docs/sessions.md", "docs/clients/openai.md"])
def test_python_for_the_sdk_runs(page: str, demo: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(block.code for block in blocks_of(page) if block.language == "python")
    assert ADDRESS in code
    run_python(code, page, demo)
    if "print(" in code:
        assert capsys.readouterr().out


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    with serving(Settings(store="memory://")) as base:
        yield base


def test_commands_of_contributors_are_there() -> None:
    for block in blocks_of("CONTRIBUTING.md"):
        for command in commands_of(block):
            for path in re.findall(r"tests/\S+", command):
                assert (REPOSITORY / path).exists(), command


def test_every_file_that_a_release_changes_has_the_version() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    (step,) = re.findall(r"^2\. The version is in (.*?);", text, re.MULTILINE | re.DOTALL)
    files = [REPOSITORY / "bridge" / "pyproject.toml"]
    files += [
        path
        for root in ("docs", "server")
        for path in (REPOSITORY / root).rglob("*.*")
        if path.suffix in (".json", ".md", ".toml", ".yaml")
    ]
    paths = {path for path in files if metadata.version(NAME) in path.read_text("utf-8")}
    assert {REPOSITORY / name for name in re.findall(r"`([^`]+)`", step)} == paths


def test_every_target_of_the_makefile_is_one_that_contributors_are_shown() -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE)
    shown = re.findall(r"\bmake ([a-z-]+)", (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8"))
    assert set(targets[0].split()) - set(shown) == set()


def parts_of_the_suite() -> list[list[str]]:
    """What pytest is given by each command of CONTRIBUTING.md that runs a part of the tests."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    matches = re.findall(r'PYTEST_ARGS=(?:"([^"\n]+)"|(\S+))|-m pytest ([^#\n]+)', text)
    parts = dict.fromkeys(next(filter(None, each)).strip() for each in matches)
    return [shlex.split(each) for each in parts if each != "-p pytest_randomly"]  # that is all of them


@pytest.mark.parametrize("arguments", parts_of_the_suite(), ids=" ".join)
def test_parts_of_the_suite_that_contributors_are_shown_have_tests(arguments: list[str]) -> None:
    """Each names where its tests are, for to look for them in the whole suite takes minutes."""
    places = [REPOSITORY / each for each in arguments if each.startswith("tests/")]
    assert any(each.exists() for each in places)
    if len(places) == len(arguments):  # nothing else is selected
        assert all(each.is_file() or any(each.rglob("test_*.py")) for each in places)
        return
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(collect, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout  # 5: nothing is selected
    assert "tests/" in done.stdout


def test_pages_that_want_it_installed_say_how_from_a_checkout() -> None:
    """Its name leads nowhere while no index has a release. One page quotes errors, one is an index's."""
    missing = []
    for page in pages():
        if page in ("docs/errors.md", "server/README.md"):
            continue
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        extras = set(re.findall(r"pip install [\"']?openresponses-server(\[\w+\])?", text))
        missing += [
            f"{page}: {each}" for each in extras if not re.search(rf"pip install '?\.{re.escape(each)}", text)
        ]
    assert missing == []


def test_configs_of_the_pages_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "LOCAL_KEY", "EAST_KEY", "WEST_KEY", "HOUSE_KEY"):
        monkeypatch.setenv(name, f"a key of {name}")
    monkeypatch.setenv("AZURE_RESOURCE_NAME", "mine")
    (forwarding,) = (
        each.code for each in blocks_of("docs/requests.md") if each.heading == "Forwarded requests"
    )
    config, profile, printing, routes, ways, sockets = (block.code for block in blocks_of("docs/routing.md"))
    (tmp_path / "forwarding.toml").write_text(forwarding)
    named = load_settings(tmp_path / "forwarding.toml").forwarding
    assert set(named) == {each.setting for each in ENDPOINTS.values()}
    (tmp_path / "bridge.toml").write_text(config)
    assert [each.name for each in load_settings(tmp_path / "bridge.toml").upstreams] == ["local", "cloud"]
    (tmp_path / "sockets.toml").write_text(sockets)
    (speaking,) = build_router(load_settings(tmp_path / "sockets.toml"), ServerSealer()).configured()
    assert speaking.sockets is not None
    (tmp_path / "house.toml").write_text(profile)
    assert profiles.profile("house", tmp_path).title == "The house's models"
    (tmp_path / "printing.toml").write_text(printing)
    assert [*build_router(load_settings(tmp_path / "printing.toml"), ServerSealer()).upstreams()]
    (tmp_path / "routes.toml").write_text(routes)
    router = build_router(load_settings(tmp_path / "routes.toml"), ServerSealer())
    target = router.resolve("gpt-5")
    found_routes = [each.candidate.route for each in (target, *target.fallbacks)]
    assert [(each.upstream, each.key) for each in found_routes] == [
        *(("east", key) for key in range(3)),
        ("second", 0),
        ("local", 0),
    ]
    (gateway,) = (block.code for block in blocks_of("docs/clients/gateways.md"))
    (tmp_path / "gateway.toml").write_text(gateway)
    behind = load_settings(tmp_path / "gateway.toml")
    assert (behind.wire, [each.profile for each in behind.upstreams]) == ("openai", ["litellm"])
    (wires,) = (block.code for block in blocks_of("docs/clients/index.md"))
    (tmp_path / "wires.toml").write_text(wires)
    monkeypatch.setenv("ZED_KEY", "a key of Zed")
    assert load_settings(tmp_path / "wires.toml").wire_keys == WireKeys(openai=[hashed("a key of Zed")])
    monkeypatch.setenv("PROXY_PASSWORD", "a password")
    (tmp_path / "ways.toml").write_text(ways)
    authority = Authority(tmp_path, "house")
    authority.certificate("me", apart=True)
    settings = load_settings(tmp_path / "ways.toml")
    addresses = [each.address for each in build_router(settings, ServerSealer()).upstreams()]
    assert addresses[1:] == ["https://models.house.example/v1", "unix:/run/model.sock"]
    (codex,) = (block.code for block in blocks_of("docs/codex.md") if block.language == "toml")
    (tmp_path / "codex.toml").write_text(codex)
    assert [each.profile for each in load_settings(tmp_path / "codex.toml").upstreams] == ["codex"]


DATA = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


@pytest.mark.parametrize("page", sorted({block.page for page in pages() for block in blocks_of(page)}))
def test_data_in_the_pages_is_well_formed(page: str) -> None:
    """Also what no test loads, since it is for programs that are not here."""
    for block in blocks_of(page):
        if block.language in DATA:
            assert DATA[block.language](block.code), block.heading


def test_every_upstream_of_the_page_can_be_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(block.code for block in blocks_of("docs/upstreams.md"))
    for variable in re.findall(r"export (\w+)=", text):
        monkeypatch.setenv(variable, "a key")
    named = re.findall(rf"^{NAME} serve --upstream ([\w-]+)", text, re.MULTILINE)
    assert named == profiles.names()
    for name in named:
        assert build_router(load_settings(None, upstreams=[{"profile": name}]), ServerSealer())


def test_the_configuration_that_is_deployed_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_API_KEY", "a key")
    monkeypatch.setenv("BRIDGE_SEALING_KEY", "00" * 32)
    settings = load_settings(DEPLOY / "bridge.toml")
    assert settings.sealing_key_env == "BRIDGE_SEALING_KEY"
    config, *_ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    assert config["data"]["bridge.toml"] == (DEPLOY / "bridge.toml").read_text()


def test_the_configuration_in_front_of_llama_cpp_is_for_the_server_that_compose_starts() -> None:
    (upstream,) = load_settings(DEPLOY / "llamacpp.toml").upstreams
    services = yaml.safe_load((DEPLOY / "compose.llamacpp.yaml").read_text())["services"]
    assert upstream.profile == "llamacpp"
    assert urlsplit(upstream.url or "").hostname in services
    command = services["llama"]["command"]
    assert command[command.index("--alias") + 1] == upstream.model
    mounted = [each.split(":")[1] for each in services["bridge"]["volumes"]]
    assert services["bridge"]["environment"]["OPENRESPONSES_BRIDGE_CONFIG"] in mounted
    assert services["bridge"]["depends_on"]["llama"] == {"condition": "service_healthy"}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each, path)
    else:
        yield path, value


def test_what_deploying_shows_is_in_the_files() -> None:
    shown = {
        block.language: block.code
        for block in blocks_of("docs/deploying.md")
        if block.heading != "One host: socket activation"
    }
    unit = (DEPLOY / "openresponses-bridge.service").read_text().splitlines()
    assert [line for line in shown["ini"].splitlines() if line[:9] != "ExecStart" and line not in unit] == []
    deployment = next(
        each
        for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
        if each["kind"] == "Deployment"
    )
    deployed = set(leaves({"spec": deployment["spec"]}))
    expected = [
        (path, value)
        for path, value in leaves(yaml.safe_load(shown["yaml"]))
        if path[-4:] not in ("port", "args")
    ]
    assert [each for each in expected if each not in deployed] == []
    (site,) = (block.code for block in blocks_of("docs/proxies.md") if block.language == "nginx")
    lines = {line.partition("#")[0].strip() for line in (DEPLOY / "nginx.conf").read_text().splitlines()}
    assert [line for line in site.splitlines() if line.strip() not in lines] == []


def test_the_commands_for_containers_are_those_of_the_files() -> None:
    """They need a container engine and a cluster; `make deploy` takes the image's steps without either."""
    page = "docs/containers.md"
    build, run = commands(page, "An image")
    export, more, up, ask = commands(page, "With PostgreSQL and Redis: compose")
    keys, llama, agent = commands(page, "With llama.cpp: compose")
    secret, apply = commands(page, "Kubernetes")
    for command in (build, up, llama, apply):
        (file,) = re.findall(r"-f (\S+)", command)
        assert (REPOSITORY / file).is_file()
    assert build in (DEPLOY / "Containerfile").read_text()
    assert shlex.split(run)[-1] == shlex.split(build)[-2]
    assert "/data" in run
    assert "EXPOSE 8080" in (DEPLOY / "Containerfile").read_text()
    needed = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose.yaml").read_text()))
    assert set(re.findall(r"(\w+)=", f"{export} {more}")) == needed
    assert set(re.findall(r"\$(\w+)", ask)) <= needed
    needed = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose.llamacpp.yaml").read_text()))
    assert set(re.findall(r"(\w+)=", keys)) == needed
    assert set(re.findall(r"\$(\w+)", agent)) <= needed
    config, *_ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    names = set(re.findall(r"--from-literal=(\w+)=", secret))
    assert names >= set(re.findall(r'(?:_env = "|\$\{)(\w+)', config["data"]["bridge.toml"]))
    unit = (DEPLOY / "openresponses-bridge.service").read_text()
    venv, _, *installed, enable = commands(page, "systemd")
    assert f"ExecStart={venv.split()[-1]}/bin/{NAME} serve" in unit
    assert enable.endswith(f" {NAME}")
    for command in installed:
        *_, source, target = command.split()
        assert source == "/dev/null" or (REPOSITORY / source).is_file()
        assert target in unit
    below = (REPOSITORY / page).read_text().partition("The file `environment` has")[2].partition(". It")[0]
    named = set(re.findall(r'(?:_env = "|\$\{)(\w+)', (DEPLOY / "bridge.toml").read_text()))
    assert set(re.findall(r"`([A-Z_]+)`", below)) == named | {"OPENRESPONSES_BRIDGE_API_KEYS"}
    settings = (REPOSITORY / "docs" / "settings.md").read_text()
    assert [name for name in names if name.startswith("OPENR") and f"`{name}`" not in settings] == []


def test_what_is_deployed_has_no_secret_and_may_not_write() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name in ("bridge", "upgrade"):
        service = compose[name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        secret = {
            key: value for key, value in service["environment"].items() if re.search("KEY|PASSWORD", key)
        }
        assert len(secret) == 4
        assert all(value.startswith("${") and ":?" in value for value in secret.values())
    assert compose["bridge"]["ports"] == ["127.0.0.1:8080:8080"]
    local = yaml.safe_load((DEPLOY / "compose.llamacpp.yaml").read_text())["services"]
    for service in local.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert all(volume.endswith(":ro") or volume == "bridge:/data" for volume in service["volumes"])
    assert local["bridge"]["ports"] == ["127.0.0.1:8080:8080"]
    assert "ports" not in local["llama"]
    for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
        if each["kind"] in ("Deployment", "Job"):
            (container,) = each["spec"]["template"]["spec"]["containers"]
            locked = container["securityContext"]
            assert locked["readOnlyRootFilesystem"]
            assert locked["allowPrivilegeEscalation"] is False
            assert each["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
            assert container["image"].endswith(f":{metadata.version(NAME)}")
        assert each["kind"] != "Secret"


def test_forms_for_issues_are_forms() -> None:
    forms = sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert {path.stem for path in forms} == {"bug", "provider", "idea", "config"}
    for path in forms:
        form = yaml.safe_load(path.read_text())
        if path.stem != "config":
            assert form["name"]
            assert form["description"]
            ids = [each["id"] for each in form["body"] if each["type"] != "markdown"]
            assert len(ids) == len(set(ids)) > 0


@pytest.mark.parametrize("page", pages())
def test_links_within_the_repository_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", (REPOSITORY / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^()\s:#]+)(?:#[^()\s]*)?\)", text):
        assert ((REPOSITORY / page).parent / target).exists(), target


def test_services_of_other_systems_start_the_real_command() -> None:
    """They are not run: these are the files' own forms, and the words that they start the server with."""
    plist = plistlib.loads((DEPLOY / "openresponses-bridge.plist").read_bytes())
    service = ElementTree.parse(DEPLOY / "openresponses-bridge.xml").getroot()
    started = service.findtext("arguments")
    assert started is not None
    for words in (plist["ProgramArguments"][1:], started.split()):
        understood(main, NAME, words)
        assert words[0] == "serve"
    assert plist["ProgramArguments"][0].endswith(f"/{NAME}")
    assert (service.findtext("executable") or "").endswith(f"\\{NAME}.exe")
    assert plist["ExitTimeOut"] > 60
