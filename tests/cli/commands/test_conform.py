"""`conform` against live servers: ours, one that refuses everything, and an address without a server."""

import asyncio
import json
import re
import shlex
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from openresponses_bridge.conformance.scenario import ServerUnderTest
from openresponses_bridge.conformance.scenarios import SCENARIOS
from openresponses_cli.agents.coding.discovery import models_of
from openresponses_cli.commands.cli import main
from openresponses_cli.commands.playing import Player, play_all
from openresponses_cli.commands.server_client import ServerClient
from openresponses_server.settings import Settings
from tests.support.certificates import Authority
from tests.support.document_blocks import commands
from tests.support.listening import listening
from tests.support.scripted_proxy import ScriptedProxy
from tests.support.serving import serving


def conform(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["conform", *arguments], catch_exceptions=False)


def verdicts(result: Result) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in map(json.loads, result.stdout.splitlines())}


class _Liar(BaseHTTPRequestHandler):
    """Lists a model, and answers everything else with an object that is not a response, or says this."""

    says: ClassVar[str | None] = None
    endless: ClassVar[bool] = False  # bytes until nobody reads them

    def do_GET(self) -> None:
        self._report(200, {"object": "list", "data": [{"id": "liar"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.endless:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b"data: {}\n" * 1_000)
        self._report(200, {"id": "resp_1", "object": "response", "status": "completed"})

    do_DELETE = do_POST  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        return None

    def _report(self, status: int, body: Any) -> None:
        if self.says is not None and self.command != "GET":
            body = {"error": {"type": "x", "code": None, "message": self.says, "param": None}}
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def liar() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Liar)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_our_server_fails_nothing(demo: str) -> None:
    result = conform(demo, "--model", "demo", "--json")
    outcomes = verdicts(result)
    assert [each for each in outcomes.values() if each["outcome"] == "failed"] == []
    assert result.exit_code == 0
    assert list(outcomes) == list(SCENARIOS)
    for area in ("transport", "schema", "order", "tools", "turns", "errors", "websocket", "compaction"):
        assert {each["outcome"] for each in outcomes.values() if each["id"].startswith(area)} == {"passed"}


def test_a_server_that_lies_fails(liar: str) -> None:
    result = conform(liar, "--json", "--timeout", "5")
    outcomes = verdicts(result)
    assert result.exit_code == 1
    assert outcomes["transport.whole"]["outcome"] == "failed"
    assert "schema" in outcomes["transport.whole"]["message"]
    assert outcomes["errors.malformed-json"]["outcome"] == "failed"
    assert outcomes["websocket.turns"]["outcome"] == "skipped"


def test_one_fault_is_written_out_once_and_listed_with_all_that_fail_of_it(demo: str) -> None:
    result = conform(demo, "--model", "nobody", "--only", "order")
    assert result.exit_code == 1
    lines, _, causes = result.stdout.partition("\nFailures by cause:\n")
    cause = "status 404 instead of 200: The model 'nobody' does not exist."
    assert lines.count(cause) == 1
    assert lines.count("as in order.stream") == 3
    failing = "order.stream, order.agreement, order.incomplete, order.incomplete-whole"
    assert causes == f"  {cause}\n      4 scenarios: {failing}\n"


def test_what_a_server_says_is_shown_without_its_control_sequences(liar: str) -> None:
    _Liar.says = "\x1b[2J\x07 gone \x00"
    try:
        result = conform(liar, "--only", "errors.malformed-json")
    finally:
        _Liar.says = None
    assert result.exit_code == 1
    assert "\\x1b[2J\\x07 gone \\x00" in result.stdout
    assert "\x1b" not in result.stdout


def test_an_answer_without_end_is_left(liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openresponses_cli.commands.playing._MOST", 2**20)
    _Liar.endless = True
    try:
        result = conform(liar, "--json", "--only", "transport.whole", "--only", "cancel.leaving")
    finally:
        _Liar.endless = False
    assert result.exit_code == 1
    assert {each["message"] for each in verdicts(result).values()} == {"the answer is longer than 1 MiB"}


def test_levels_and_skipped_names_leave_scenarios_out(demo: str) -> None:
    core = verdicts(conform(demo, "--model", "demo", "--json", "--level", "core", "--skip", "tools"))
    expected = [each for each in SCENARIOS.values() if each.level == "core" and each.area != "tools"]
    assert list(core) == [each.id for each in expected]
    assert {each["level"] for each in core.values()} == {"core"}
    areas = {each.area for each in SCENARIOS.values() if each.level == "full"}
    assert areas == {"turns", "stored", "cancel", "resume", "websocket", "compaction"}
    one = verdicts(conform(demo, "--json", "--only", "transport", "--skip", "transport.models"))
    assert list(one) == ["transport.whole", "transport.streamed", "transport.line-ends"]


def test_junit_report(demo: str, liar: str, tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    _Liar.says = "no \x00 <b>"
    try:
        result = conform(liar, "--junit", str(path), "--only", "errors", "--only", "websocket.turns")
    finally:
        _Liar.says = None
    assert result.exit_code == 1
    suite = ElementTree.fromstring(path.read_bytes())[0]
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert [each.get("name") for each in suite.iter("property")] == ["version"]
    assert suite.get("tests") == str(len(cases)) == "8"
    assert (
        suite.get("failures") == str(sum(case.find("failure") is not None for case in cases.values())) != "0"
    )
    failure = cases["errors.malformed-json"].find("failure")
    assert failure is not None
    assert failure.get("message") == "status 200 instead of 400: no \\x00 <b>"
    assert cases["websocket.turns"].find("skipped") is not None
    assert cases["websocket.turns"].get("classname") == "websocket"
    unwritable = conform(demo, "--only", "transport.whole", "--junit", str(tmp_path / "none" / "x.xml"))
    assert unwritable.exit_code == 2
    assert "No such file" in unwritable.stderr


@pytest.mark.parametrize("lies", [False, True])
def test_badge(demo: str, liar: str, tmp_path: Path, lies: bool) -> None:
    path = tmp_path / "badge.json"
    conform(liar if lies else demo, "--badge", str(path), "--only", "transport", "--level", "core")
    badge = json.loads(path.read_text())
    assert (badge["schemaVersion"], badge["label"]) == (1, "OpenResponses core")
    assert badge["color"] == ("red" if lies else "brightgreen")
    passed, _, total = badge["message"].split()[:3]
    assert (int(passed) < int(total)) is lies
    assert metadata.version("openresponses-bridge") in badge["message"]


@pytest.mark.untraced
def test_nothing_is_left_on_the_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'sessions.sqlite3'}"
    with serving(Settings(store=store)) as base:
        assert conform(base, "--model", "demo").exit_code == 0
        time.sleep(0.3)  # what was cut off and deleted has had time to come back
    export = CliRunner().invoke(main, ["db", "export", "--store", store], catch_exceptions=False)
    assert export.exit_code == 0
    assert export.stdout == ""


def test_what_can_t_be_deleted_is_named(demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openresponses_cli.commands.playing._GONE", frozenset())
    result = conform(demo, "--json", "--only", "transport.whole")
    assert result.exit_code == 0
    assert re.fullmatch(r"not deleted on the server: resp_[0-9a-f]{32}\n", result.stderr)
    assert len(verdicts(result)) == 1


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = ScriptedProxy(user="me:word")

    async def play() -> None:
        async with proxy.listening():
            monkeypatch.setenv("HTTP_PROXY", f"http://me:word@127.0.0.1:{proxy.port}")
            target, turns = "http://bridge.example", [SCENARIOS["websocket.turns"]]
            verdicts, _ = await play_all(turns, f"{target}/v1", {}, "demo", "openresponses", 30)
            assert [verdict.outcome for verdict in verdicts] == ["passed"], verdicts
            async with ServerClient(target) as client:
                assert await client.first_model()
            assert (await models_of(target, None)).listed

    with serving(Settings(allowed_hosts=["bridge.example"])) as base:
        proxy.hosts = {"bridge.example:80": urlsplit(base).port or 0}
        asyncio.run(play())
    requests = [head.partition(" HTTP/1.1")[0] for head in proxy.passed]
    listing = "GET http://bridge.example:80/v1/models"
    assert requests == [listing, "CONNECT bridge.example:80", listing, f"{listing}?client_version=1"]


def test_a_certificate_that_is_not_trusted_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(Authority(tmp_path).certificate("bridge.example"))

    async def play() -> str:
        async with listening(_nothing, tls) as port:
            proxy = ScriptedProxy({"bridge.example:443": port})
            async with proxy.listening(), Player("https://bridge.example/v1", {}, 30) as player:
                monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
                target = ServerUnderTest("demo", "openresponses")
                return (await player.play(SCENARIOS["websocket.turns"], target)).message

    assert asyncio.run(play()).startswith("the connection failed: its certificate is not accepted")
    messages = [record.getMessage() for record in caplog.records]
    # of the test's own server, in asyncio's debug mode
    assert [each for each in messages if "for incoming connection" not in each] == []


async def _nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    return None


def test_a_server_that_redirects_says_where_to(liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def redirect(self: _Liar) -> None:
        self.send_response(308)
        self.send_header("location", "https://there.example/v1/models")
        self.end_headers()

    monkeypatch.setattr(_Liar, "do_GET", redirect)
    result = conform(liar)
    assert result.exit_code == 2
    assert f"{liar}/v1 redirects to https://there.example/v1/models" in result.stderr


def test_without_a_model_the_first_listed_is_asked(demo: str) -> None:
    result = conform(demo, "--only", "transport.whole")
    assert result.exit_code == 0
    assert "1 passed, 0 failed, 0 skipped" in result.stdout


@pytest.mark.parametrize("arguments", [(), ("--model", "x")])
def test_a_server_that_is_not_there_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    result = conform("http://127.0.0.1:1", *arguments)
    assert result.exit_code == 2
    assert "127.0.0.1:1" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ftp://x",), "not an http address"),
        (("http://127.0.0.1:1", "--only", "nothing"), "no scenario is called nothing"),
        (("http://127.0.0.1:1", "--skip", "nothing"), "no scenario is called nothing"),
        (("http://127.0.0.1:1", "--only", "order", "--skip", "order"), "these options leave no scenario"),
        (("http://127.0.0.1:1", "--level", "most"), "'most' is not one of 'core', 'full'"),
        (("http://127.0.0.1:1", "--api-key-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], said: str) -> None:
    result = conform(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(Settings(store="memory://")) as base:
        for command in commands("docs/conformance.md", "Conformance"):
            _, name, *words = shlex.split(command.replace("http://127.0.0.1:8080", base))
            done = CliRunner().invoke(main, [name, *words])
            assert done.exit_code == 0, done.output
    assert ElementTree.parse(tmp_path / "report.xml").getroot().tag == "testsuites"
