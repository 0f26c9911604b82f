"""Keys that a program prints, headers and parameters of addresses: what reaches an upstream."""

import asyncio
import json
import os
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import Settings, SettingsError, UpstreamSettings, load_settings
from openresponses_server.upstreams import key_command
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.key_command import KeyCommand, PrintedKey, printed_key
from openresponses_server.upstreams.profiles import names, profile
from openresponses_server.upstreams.routing.models import build_router
from tests.support import dialect_scripts as scripts
from tests.support.clocks import Clock
from tests.support.serving import respond, serving
from tests.support.upstream import Received, Script, ScriptedUpstream, refusal
from tests.support.waiting import until

NOW = 1_800_000_000.0


def token(**claims: Any) -> str:
    middle = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{middle}.c2ln"


PRINTED: dict[str, tuple[str | bytes, PrintedKey | None]] = {
    "the key alone": ("sk-1\n", PrintedKey("sk-1")),
    "of az": (
        '{"accessToken": "k", "expiresOn": "2027-01-15 09:00:00.000000", "expires_on": 1800003600}',
        PrintedKey("k", 1_800_003_600),
    ),
    "of Copilot": ('{"token": "k", "expires_at": 1800001800}', PrintedKey("k", 1_800_001_800)),
    "of OAuth": ('{"access_token": "k", "expires_in": 3600}', PrintedKey("k", NOW + 3600)),
    "a time with its zone": (
        '{"token": "k", "expirationTimestamp": "2027-01-15T08:00:00Z"}',
        PrintedKey("k", 1_800_000_000),
    ),
    "a time without its zone": ('{"token": "k", "expiry": "2027-01-15T08:00:00"}', PrintedKey("k")),
    "digits": ('{"token": "k", "expires_on": "1800003600"}', PrintedKey("k", 1_800_003_600)),
    "a token that says it itself": (token(exp=NOW + 60), PrintedKey(token(exp=NOW + 60), NOW + 60)),
    "a token with nonsense": (token(exp="soon"), PrintedKey(token(exp="soon"))),
    "no token": ("a.b.c", PrintedKey("a.b.c")),
    "nothing": ("", None),
    "several lines": ("one\ntwo", None),
    "words": ("no such account", None),
    "a control character": ("k\x1b[31m", None),
    "another script": ("clé", None),
    "broken JSON": ('{"token": "k"', None),
    "broken JSON without spaces": ('{"accessToken":"k"', None),
    "an empty object": ("{}", None),
    "another JSON value": ('["k"]', None),
    "a text in JSON": ('"k"', None),
    "a page": ("<html>", None),
    "JSON without a key": ('{"expires_in": 1}', None),
    "a key of another type": ('{"token": ["k"]}', None),
    "a header in the key": ('{"token": "k\\r\\nx-admin: 1"}', None),
    "too long": ("k" * 20_000, None),
    "bytes": (b"\xff\xfe", None),
    "a wild time": ('{"token": "k", "expires_at": 1e300}', PrintedKey("k")),
    "deep": ('{"token": "k", "a": ' + "[" * 200_000 + "]" * 200_000 + "}", None),
}


@pytest.mark.parametrize("case", PRINTED)
def test_what_a_program_prints(case: str) -> None:
    output, expected = PRINTED[case]
    data = output if isinstance(output, bytes) else output.encode()
    assert printed_key(data, NOW) == expected


class Program:
    """A program whose `text` is Python, and how often it ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.text = ""

    def argv(self, text: str) -> list[str]:
        counting = f"open({str(self.folder / 'runs')!r}, 'a').write('x')\n"
        number = f"n = len(open({str(self.folder / 'runs')!r}).read())\n"
        return [sys.executable, "-I", "-S", "-c", f"import sys, time\n{counting}{number}{text}"]

    @property
    def runs(self) -> int:
        path = self.folder / "runs"
        return len(path.read_text()) if path.exists() else 0


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


async def _same(key: str) -> str:
    return key


async def test_requests_at_once_share_one_run(program: Program) -> None:
    command = KeyCommand("u", program.argv("time.sleep(0.2); print(f'k{n}')"), 300)
    keys = await asyncio.gather(*(command.try_with(_same) for _ in range(20)))
    assert (set(keys), program.runs) == ({"k1"}, 1)


async def test_one_that_leaves_takes_the_key_from_nobody(program: Program) -> None:
    command = KeyCommand("u", program.argv("time.sleep(0.3); print('k')"), 300)
    first, second = (asyncio.create_task(command.try_with(_same)) for _ in range(2))
    await asyncio.sleep(0.05)
    first.cancel()
    assert await second == "k"
    assert program.runs == 1


async def test_it_runs_again_shortly_before_the_key_expires(program: Program) -> None:
    clock = Clock(NOW)
    argv = program.argv('print(\'{"token": "k%d", "expires_at": %d}\' % (n, 1800000600 * n))')
    command = KeyCommand("u", argv, 300, clock)
    assert await command.try_with(_same) == "k1"
    clock.now += 535
    assert await command.try_with(_same) == "k1"
    clock.now += 10  # less than a minute before its end
    assert await command.try_with(_same) == "k2"


async def test_a_key_that_does_not_say_is_kept_for_a_time(program: Program) -> None:
    clock = Clock(NOW)
    command = KeyCommand("u", program.argv("print(f'k{n}')"), 100, clock)
    assert [await command.try_with(_same), await command.try_with(_same)] == ["k1", "k1"]
    clock.now += 95
    assert await command.try_with(_same) == "k2"


FAILURES: dict[str, str] = {
    "a code": "sys.stderr.write('not logged in\\n'); sys.exit(3)",
    "no key": "print('please log in')",
    "too much": "sys.stdout.write('k' * 200_000)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failure_is_told_to_the_operator(program: Program, case: str) -> None:
    clock = Clock(NOW)
    command = KeyCommand("u", program.argv(FAILURES[case]), 300, clock)
    with capture_logs() as logs:
        errors = [await _error(command) for _ in range(3)]
        clock.now += 2
        await _error(command)
    assert {(error.http_status, error.code) for error in errors} == {(502, UpstreamError.UNREACHABLE)}
    assert all("logged in" not in error.message + error.cause for error in errors)
    assert program.runs == 2, "requests within a second of a failure do not run it again"
    assert {each["event"] for each in logs} >= {"upstream.no_key"}
    assert ("not logged in" in str(logs)) == (case == "a code")


async def _error(command: KeyCommand) -> UpstreamError:
    with pytest.raises(UpstreamError) as raised:
        await command.try_with(_same)
    return raised.value


async def test_a_program_that_is_not_there() -> None:
    error = await _error(KeyCommand("u", ["/nowhere/at-all"], 300))
    assert error.message == "this server has no key for the upstream u at the moment"
    assert "/nowhere" not in error.message


async def test_one_that_hangs_is_ended_with_its_children(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_command, "_KEY_SECONDS", 0.5)
    pids = program.folder / "pids"
    argv = ["sh", "-c", f"sleep 60 & echo $! > {pids}; echo $$ >> {pids}; wait"]
    await _error(KeyCommand("u", argv, 300))
    assert not Path("/proc", pids.read_text().split()[1]).exists(), "the program itself is not waited for"
    await until(lambda: not any(_runs(int(pid)) for pid in pids.read_text().split()))


async def _ends_beside_what_it_started(program: Program, started: str) -> None:
    """A program that prints a key and ends, while what it started runs on."""
    pid = program.folder / "pid"
    argv = ["sh", "-c", f"{started} & echo $! > {pid}; echo k"]
    assert await KeyCommand("u", argv, 300).try_with(_same) == "k"
    left = int(pid.read_text())
    assert _runs(left)
    os.kill(left, 9)


async def test_what_a_program_leaves_running_is_its_own_affair(program: Program) -> None:
    """Such as the agent of a password store."""
    await _ends_beside_what_it_started(program, "sleep 60 >/dev/null 2>&1")


async def test_what_holds_its_output_costs_no_time_and_no_key(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has ended, and what it started writes on."""
    monkeypatch.setattr(key_command, "_KEY_SECONDS", 3600.0)
    await _ends_beside_what_it_started(program, "sleep 3600")


async def test_one_that_hangs_is_given_up_though_others_hold_its_output(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_command, "_KEY_SECONDS", 0.5)
    pid = program.folder / "pid"
    text = (
        "import subprocess\n"
        "left = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        f"open({str(pid)!r}, 'w').write(str(left.pid))\ntime.sleep(3600)"
    )
    await _error(KeyCommand("u", program.argv(text), 300))
    os.kill(int(pid.read_text()), 9)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_key_is_in_no_log(program: Program) -> None:
    argv = program.argv(
        "sys.stderr.write('using secret-key-of-the-day-1234567\\n'); print('secret-key-of-the-day-1234567')"
    )
    with capture_logs() as logs:
        assert await KeyCommand("u", argv, 300).try_with(_same) == "secret-key-of-the-day-1234567"
    assert "secret-key" not in str(logs)
    assert "[key]" in str(logs)


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        yield scripted


def test_a_refused_key_is_asked_for_once_more(upstream: ScriptedUpstream, program: Program) -> None:
    def answer(received: Received) -> Script:
        fine = received.headers["authorization"] == "Bearer k2"
        return Script(scripts.text("chat", "ok")) if fine else refusal(401, message="expired k1", code="x")

    upstream.answer = answer
    settings = UpstreamSettings(url=upstream.url, api_key_command=program.argv("print(f'k{n}')"))
    with serving(Settings(upstreams=[settings])) as base:
        answers = [respond(base, model="m").json["status"] for _ in range(3)]
    assert (answers, program.runs) == (["completed"] * 3, 2)


def test_a_key_that_stays_refused_costs_one_run_more(upstream: ScriptedUpstream, program: Program) -> None:
    upstream.answer = lambda received: refusal(401, message="no", code="x")
    settings = UpstreamSettings(url=upstream.url, api_key_command=program.argv("print('same')"))
    with serving(Settings(upstreams=[settings])) as base:
        answers = [respond(base, model="m") for _ in range(4)]
    assert {each.status for each in answers} == {400}
    assert program.runs == 2
    assert "does not accept this server's key" in answers[0].json["error"]["message"]


def test_another_error_asks_for_no_key(upstream: ScriptedUpstream, program: Program) -> None:
    upstream.answer = lambda received: refusal(429, message="slow down", code="x")
    settings = UpstreamSettings(url=upstream.url, api_key_command=program.argv("print(f'k{n}')"))
    with serving(Settings(upstreams=[settings])) as base:
        assert respond(base, model="m").status == 429
    assert program.runs == 1


def test_headers_and_parameters_of_the_address(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(scripts.text("chat", "ok"))
    settings = UpstreamSettings(
        url=f"{upstream.url}/openai/deployments/d",
        api_key="${HOME}",
        api_key_header="API-Key",
        query={"api-version": "2024-10-21", "x": "a b&c"},
    )
    with serving(Settings(upstreams=[settings])) as base:
        assert respond(base, model="m").json["status"] == "completed"
    received = upstream.last("m")
    assert received.path.endswith("/openai/deployments/d/chat/completions?api-version=2024-10-21&x=a+b%26c")
    assert received.headers["api-key"] == os.environ["HOME"]
    assert "authorization" not in received.headers


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pass_through": True}, "are mutually exclusive"),
        ({"api_key": "${HOME}"}, "it already has a key"),
        ({"api_key_env": "HOME"}, "it already has a key"),
    ],
)
def test_one_way_to_a_key(fields: dict[str, Any], message: str) -> None:
    wrong = {"url": "http://127.0.0.1:1", "api_key_command": ["true"], **fields}
    with pytest.raises(SettingsError, match=message) as raised:
        build_router(load_settings(upstreams=[wrong]), Sealer())
    assert raised.value.at.endswith(".api_key_command")


@pytest.mark.parametrize(
    "fields",
    [{"api_key": "${HOME}"}, {"api_key_env": "HOME"}, {"api_key_command": ["true"]}, {"pass_through": True}],
)
def test_several_keys_are_instead_of_another(fields: dict[str, Any]) -> None:
    wrong = {"url": "http://127.0.0.1:1", "api_keys": ["${HOME}"], **fields}
    with pytest.raises(SettingsError, match="api_keys can't be combined with another key") as raised:
        build_router(load_settings(upstreams=[wrong]), Sealer())
    assert raised.value.at.endswith(".api_keys")


@pytest.mark.parametrize("keys", [["${NOT_SET_ANYWHERE}"], [[]], [["true", "${NOT_SET_ANYWHERE}"]], [""]])
def test_a_wrong_key_of_several_is_named(keys: list[Any]) -> None:
    options = {"url": "http://127.0.0.1:1", "api_keys": ["one", *keys]}
    with pytest.raises(SettingsError) as raised:
        build_router(load_settings(upstreams=[options]), Sealer())
    assert ".api_keys[1]" in raised.value.at


def test_the_same_key_twice_is_one() -> None:
    options = {"url": "http://127.0.0.1:1", "api_keys": ["one", "one", ["true"], ["true"]]}
    (target,) = build_router(load_settings(upstreams=[options]), Sealer()).configured()
    assert len(target.upstreams) == 2


GCLOUD = """#!/bin/sh
test "$*" = "auth application-default print-access-token" && echo printed
"""
OPENAI = "authorization: Bearer k"
ANTHROPIC = "x-api-key: k"
KEY_HEADERS = ("authorization", "api-key", "x-api-key")
# profile → dialect → (where a request goes, its key, an option)
PROFILES: dict[str, dict[str, tuple[str, str, tuple[str, Any]]]] = {
    "zai": {
        "chat": ("https://api.z.ai/api/paas/v4/chat/completions", OPENAI, ("json_schema", "json_object")),
        "anthropic": (
            "https://api.z.ai/api/anthropic/v1/messages",
            "x-api-key: k",
            ("unsigned_thinking", True),
        ),
    },
    "xiaomi": {
        "chat": (
            "https://api.xiaomimimo.com/v1/chat/completions",
            OPENAI,
            ("reasoning_field", "reasoning_content"),
        ),
    },
    "sglang": {
        "chat": ("http://127.0.0.1:30000/v1/chat/completions", "", ("wrap_arguments", True)),
    },
    "azure": {
        "responses": (
            "https://mine.openai.azure.com/openai/v1/responses",
            "api-key: k",
            ("encrypted_reasoning", True),
        ),
        "chat": (
            "https://mine.openai.azure.com/openai/v1/chat/completions",
            "api-key: k",
            ("developer_role", "developer"),
        ),
    },
    "bedrock-mantle": {
        "chat": (
            "https://bedrock-mantle.us-east-1.api.aws/v1/chat/completions",
            OPENAI,
            ("reasoning_field", "reasoning"),
        ),
        "responses": (
            "https://bedrock-mantle.us-east-1.api.aws/v1/responses",
            OPENAI,
            ("supersets", False),
        ),
    },
    "together": {
        "chat": ("https://api.together.ai/v1/chat/completions", OPENAI, ("max_tokens_field", "max_tokens")),
    },
    "fireworks": {
        "chat": (
            "https://api.fireworks.ai/inference/v1/chat/completions",
            OPENAI,
            ("reasoning_field", "reasoning_content"),
        ),
        "anthropic": (
            "https://api.fireworks.ai/inference/v1/messages",
            "x-api-key: k",
            ("unsigned_thinking", True),
        ),
    },
    "cerebras": {
        "chat": ("https://api.cerebras.ai/v1/chat/completions", OPENAI, ("reasoning_field", "reasoning")),
    },
    "nvidia": {
        "chat": (
            "https://integrate.api.nvidia.com/v1/chat/completions",
            OPENAI,
            ("max_tokens_field", "max_tokens"),
        ),
    },
    "huggingface": {
        "chat": ("https://router.huggingface.co/v1/chat/completions", OPENAI, ("reasoning_field", None)),
        "responses": ("https://router.huggingface.co/v1/responses", OPENAI, ("supersets", False)),
    },
    "github-copilot": {
        "chat": (
            "https://api.githubcopilot.com/chat/completions",
            OPENAI,
            ("max_tokens_field", "max_tokens"),
        ),
        "responses": ("https://api.githubcopilot.com/responses", OPENAI, ("encrypted_reasoning", True)),
    },
    "siliconflow": {
        "chat": (
            "https://api.siliconflow.com/v1/chat/completions",
            OPENAI,
            ("reasoning_field", "reasoning_content"),
        ),
    },
    "volcengine": {
        "chat": (
            "https://ark.cn-beijing.volces.com/api/v3/chat/completions",
            OPENAI,
            ("max_tokens_field", "max_tokens"),
        ),
        "responses": ("https://ark.cn-beijing.volces.com/api/v3/responses", OPENAI, ("supersets", False)),
    },
    "perplexity": {
        "chat": ("https://api.perplexity.ai/chat/completions", OPENAI, ("web_search", "perplexity")),
    },
    "stepfun": {
        "chat": ("https://api.stepfun.com/v1/chat/completions", OPENAI, ("reasoning_field", "reasoning")),
    },
    "vertex": {
        "chat": (
            "https://aiplatform.googleapis.com/v1/projects/mine/locations/global/endpoints/openapi"
            "/chat/completions",
            "authorization: Bearer printed",
            ("prefill", False),
        ),
    },
}


@pytest.mark.parametrize(
    ("name", "dialect"), [(name, dialect) for name in PROFILES for dialect in PROFILES[name]]
)
async def test_where_a_profile_leads(
    name: str, dialect: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = profile(name)
    for variable in ("AZURE_RESOURCE_NAME", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.setenv(variable, "mine")
    monkeypatch.delenv("AWS_REGION", raising=False)
    if known.api_key_env:
        monkeypatch.setenv(known.api_key_env, "k")
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(
        '#!/bin/sh\ntest "$*" = "auth application-default print-access-token" && echo printed\n'
    )
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    settings = load_settings(upstreams=[{"profile": name, "dialect": dialect}])
    target = build_router(settings, Sealer()).resolve("m")
    seen: list[tuple[str, dict[str, str]]] = []

    class Client:
        async def request(self, method: str, url: str, *, headers: dict[str, str], **_: object) -> Any:
            seen.append((url, headers))
            raise OSError("seen")

        async def close(self) -> None: ...

    upstream = innermost(target.upstream)
    upstream._connect = lambda name, timeouts: Client()
    with pytest.raises(UpstreamError):
        async with upstream.open(UpstreamRequest(target.dialect.path("m"), b"{}", "r")):
            pass
    ((url, headers),) = seen
    expected, key, (option, value) = PROFILES[name][dialect]
    assert url == expected
    shown = {
        f"{each}: {headers[each]}" for each in ("authorization", "api-key", "x-api-key") if each in headers
    }
    assert shown == ({key} - {""})
    assert getattr(target.options, option) == value


def innermost(upstream: Any) -> Any:
    """The upstream without what is around it."""
    return innermost(upstream.inner) if hasattr(upstream, "inner") else upstream


def test_each_of_the_table_is_a_profile() -> None:
    assert set(PROFILES) <= set(names())


def test_a_profile_s_command_is_for_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(upstreams=[{"profile": "vertex", "url": "http://127.0.0.1:1/v1"}])
    upstream = innermost(build_router(settings, Sealer()).resolve("m").upstream)
    assert upstream.key_command is None
