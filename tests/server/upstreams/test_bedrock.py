"""Bedrock as an upstream: its signatures and keys, its binary stream, its refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.seal import Sealer
from openresponses_server.settings import AwsSettings, Settings, SettingsError, UpstreamSettings
from openresponses_server.upstreams.routing.models import build_router
from tests.support import converse
from tests.support import upstream as chat
from tests.support.serving import Reply, respond, serving, stream, violations
from tests.support.strict_converse import KEY, REGION, SECRET, StrictBedrock, refused
from tests.support.strict_sessions import planned, prompt
from tests.support.strict_upstreams import Asked, Said
from tests.support.upstream import JSON, Received, Script, ScriptedUpstream

pytest.importorskip("botocore")
CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
ARN = "arn:aws:bedrock:eu-west-3:123456789012:application-inference-profile/a1b2c3d4e5f6"
LOOK = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own: a test says what the operator has."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        yield scripted


def says(text: str = "Hello") -> Any:
    return lambda asked: Said(text)


def root(upstream: ScriptedUpstream) -> str:
    return upstream.url.removesuffix("/v1")


def strict(upstream: ScriptedUpstream, rule: Any = None) -> StrictBedrock:
    bedrock = StrictBedrock(rule or says(), lambda: root(upstream))
    upstream.answer = bedrock
    return bedrock


def signed(upstream: ScriptedUpstream, **more: Any) -> UpstreamSettings:
    return UpstreamSettings(
        **{
            "url": root(upstream),
            "dialect": "bedrock",
            "name": "b",
            "aws": AwsSettings(region=REGION),
            **more,
        }
    )


def settings(*upstreams: UpstreamSettings) -> Settings:
    return Settings(upstreams=list(upstreams), store="memory://")


def said_by(reply: Reply) -> str:
    return str(reply.final["output"][0]["content"][0]["text"])


@pytest.mark.parametrize("model", ["amazon.nova-lite-v1:0", CLAUDE, ARN, "a b/ü@1", "~x-._%2F"])
def test_a_signature_is_of_what_is_sent(upstream: ScriptedUpstream, model: str) -> None:
    bedrock = strict(upstream)
    with serving(settings(signed(upstream))) as base:
        reply = stream(base, model=model)
        assert (said_by(reply), violations(reply)) == ("Hello", [])
    assert (bedrock.refused, bedrock.models) == ([], [model])
    (request,) = upstream.received
    assert request.path.endswith("/converse-stream")
    assert request.headers["accept"] == "application/vnd.amazon.eventstream"


def test_parameters_of_the_address_are_signed_too(upstream: ScriptedUpstream) -> None:
    bedrock = strict(upstream)
    bedrock.strict.provider.paths = "?b=c+d&a=%C3%BC&stream="  # type: ignore[misc]
    query = {"b": "c d", "a": "ü", "stream": ""}
    with serving(settings(signed(upstream, query=query))) as base:
        assert stream(base, model="m").status == 200
    assert bedrock.refused == []


@pytest.mark.parametrize("secret", ["of another", SECRET + "x"])
def test_a_wrong_signature_is_the_operators_matter(
    upstream: ScriptedUpstream, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    bedrock = strict(upstream)
    with serving(settings(signed(upstream))) as base:
        reply = respond(base, model="m")
    assert reply.status == 400
    assert reply.error["code"] == "upstream_authentication_failed"
    assert secret not in reply.body.decode()
    assert bedrock.refused == [
        "The request signature we calculated does not match the signature you provided."
    ]


def test_a_bearer_key_is_sent_instead(upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    bedrock = strict(upstream)
    bedrock.bearer = "bedrock-api-key-abc"
    with serving(settings(signed(upstream, aws=None, api_key="bedrock-api-key-abc"))) as base:
        assert said_by(stream(base, model="m")) == "Hello"
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-abc")
    known = UpstreamSettings(profile="bedrock")
    target = build_router(settings(known), Sealer()).resolve("m")
    assert target.upstream.inner.signer is None  # type: ignore[attr-defined]
    assert bedrock.refused == []


def test_ten_turns_with_tools_and_reasoning_are_never_refused(upstream: ScriptedUpstream) -> None:
    """The order of messages, each field and each signature are what the service takes back."""
    plans = [
        [[("look", {"a": 1})], [("look", {"a": 2}), ("look", {"a": 3})]],
        [[("look", "{}")]],
        [],
    ]
    bedrock = strict(upstream, planned(plans))
    with serving(settings(signed(upstream))) as base:
        previous: str | None = None
        for turn in range(1, 11):
            items: Any = prompt(turn)
            while True:
                asked = {"model": CLAUDE, "input": items, "tools": [LOOK], "reasoning": {"effort": "low"}}
                reply = stream(base, **asked, **({"previous_response_id": previous} if previous else {}))
                assert (reply.final["status"], violations(reply)) == ("completed", [])
                previous = reply.final["id"]
                calls = [item for item in reply.final["output"] if item["type"] == "function_call"]
                if not calls:
                    break
                items = [
                    {"type": "function_call_output", "call_id": call["call_id"], "output": f"seen {turn}"}
                    for call in calls
                ]
            assert f"Turn {turn} is done." in json.dumps(reply.final["output"])
    assert bedrock.refused == []
    bodies = [asked.body for asked in upstream.received]
    thoughts = [
        block
        for message in bodies[-1]["messages"]
        for block in message["content"]
        if "reasoningContent" in block
    ]
    assert len(thoughts) > 10
    budget = bodies[0]["additionalModelRequestFields"]["thinking"]
    assert budget == {"type": "enabled", "budget_tokens": 2048}


def test_an_answer_that_is_not_streamed_is_asked_for_so(upstream: ScriptedUpstream) -> None:
    answer = {"output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}}}
    answer |= {"stopReason": "end_turn", "usage": converse.USAGE, "metrics": {"latencyMs": 3}}
    upstream.answer = lambda _: Script([json.dumps(answer).encode()], headers=dict(JSON))
    with serving(settings(signed(upstream))) as base:
        reply = respond(base, model="m")
    assert reply.json["output"][0]["content"][0]["text"] == "Hello"
    assert reply.json["usage"]["total_tokens"] == 5


# ── credentials ──────────────────────────────────────────────────────────────────────────────────────────


def of_role(received: Received) -> Script:
    """What STS and a container's endpoint answer."""
    until = "2099-01-01T00:00:00Z"
    if received.path.startswith("/container"):
        body = {"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": "of-it", "Expiration": until}
        return Script([json.dumps(body).encode()], headers=dict(JSON))
    xml = (
        '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        "<AssumeRoleWithWebIdentityResult><Credentials>"
        f"<AccessKeyId>{KEY}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
        f"<SessionToken>of-it</SessionToken><Expiration>{until}</Expiration>"
        "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    )
    return Script([xml.encode()], headers={"content-type": "text/xml"})


@pytest.mark.parametrize("source", ["profile", "web identity", "container", "environment with a token"])
def test_credentials_come_from_where_the_operator_has_them(
    upstream: ScriptedUpstream, source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bedrock, aws = strict(upstream), AwsSettings(region=REGION)
    if source != "environment with a token":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with ScriptedUpstream() as elsewhere:
        elsewhere.answer = of_role
        elsewhere.pages = {"/container/1": of_role(Received("GET", "/container/1", {}, {}))}
        address = elsewhere.url.removesuffix("/v1")
        if source == "profile":
            (tmp_path / "credentials").write_text(
                f"[mine]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
                "aws_session_token = of-it\n"
            )
            (tmp_path / "config").write_text(f"[profile mine]\nregion = {REGION}\n")
            aws = AwsSettings(profile="mine")
        elif source == "web identity":
            (tmp_path / "token").write_text("a.b.c")
            monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
            monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")
            monkeypatch.setenv("AWS_ENDPOINT_URL_STS", address)
            monkeypatch.setenv("AWS_REGION", REGION)
            monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        elif source == "container":
            monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{address}/container/1")
        else:
            monkeypatch.setenv("AWS_SESSION_TOKEN", "of-it")
        bedrock.token = "of-it"
        with serving(settings(signed(upstream, aws=aws))) as base:
            assert said_by(stream(base, model="m")) == "Hello"
            assert said_by(stream(base, model="m")) == "Hello"
    assert bedrock.refused == []
    assert len(elsewhere.received) == (1 if source == "web identity" else 0)


def test_the_metadata_service_is_not_asked(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    strict(upstream)
    with ScriptedUpstream() as metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url.removesuffix("/v1"))
        with serving(settings(signed(upstream))) as base:
            reply = respond(base, model="m")
    assert reply.status == 502
    assert "has no credentials" in reply.error["message"]
    assert (metadata.connections, upstream.received) == ([], [])


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"aws": AwsSettings(region=REGION), "api_key": "k"}, "it has a key"),
        ({"aws": AwsSettings()}, "no region is named"),
        ({"aws": AwsSettings(profile="nobodys", region=REGION)}, "nobodys"),
        ({"dialect": "chat"}, "requests of dialect chat are not signed"),
    ],
)
def test_settings_that_sign_nothing_are_refused(
    upstream: ScriptedUpstream, given: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(SettingsError, match=wrong):
        build_router(settings(signed(upstream, **given)), Sealer())


def test_the_region_of_an_address_is_that_of_its_signature() -> None:
    regions = {
        "https://bedrock-runtime.us-gov-west-1.amazonaws.com": "us-gov-west-1",
        "https://bedrock-runtime-fips.ca-central-1.amazonaws.com": "ca-central-1",
        "https://vpce-1.bedrock-runtime.ap-southeast-2.vpce.amazonaws.com": None,
        "https://bedrock-runtime.cn-north-1.amazonaws.com.cn": "cn-north-1",
    }
    for url, region in regions.items():
        options = UpstreamSettings(
            url=url, dialect="bedrock", aws=AwsSettings(region=None if region else "x-1")
        )
        target = build_router(settings(options), Sealer()).resolve("m")
        assert target.upstream.inner.signer.region == (region or "x-1")  # type: ignore[attr-defined]


# ── refusals and the stream ──────────────────────────────────────────────────────────────────────────────


def other(answer: ScriptedUpstream) -> UpstreamSettings:
    answer.scripts["m"] = Script(chat.text("from", " another"))
    return UpstreamSettings(url=answer.url, name="o", api_key="none")


def slow_down(_received: Received) -> Script:
    return refused("Too many requests, please wait before trying again.", "ThrottlingException", 429)


def exception(kind: str, *before: Any) -> Any:
    events = [*before, {kind: {"message": "It did not work."}}]
    return lambda _: Script(list(converse.messages(events)), headers=converse.HEADERS)


REFUSALS = {
    "throttled": slow_down,
    "not ready": lambda _: refused("Model is not ready.", "ModelNotReadyException", 429),
    "unavailable": lambda _: refused("Unavailable.", "ServiceUnavailableException", 503),
    "timed out": lambda _: refused("The model timed out.", "ModelTimeoutException", 408),
    "no access": lambda _: refused("You don't have access to the model.", "AccessDeniedException", 403),
    "an exception at once": exception("throttlingException"),
    "an exception first": exception("throttlingException", converse.start()),
    "unavailable first": exception("serviceUnavailableException", converse.start()),
    "internal": exception("internalServerException"),
    "of the model": exception("modelStreamErrorException"),
    "no stream": lambda _: Script([b"\0" * 64], headers=converse.HEADERS),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_another_upstream_answers_what_this_one_refuses(upstream: ScriptedUpstream, name: str) -> None:
    upstream.answer = REFUSALS[name]
    with ScriptedUpstream() as second:
        both = settings(signed(upstream, failover=["o"]), other(second))
        with serving(both) as base:
            reply = stream(base, model="m")
    assert said_by(reply) == "from another"
    assert violations(reply) == []


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("ValidationException", 400, "invalid_request"),
        ("ThrottlingException", 429, "rate_limit_exceeded"),
        ("ResourceNotFoundException", 404, "model_not_found"),
    ],
)
def test_a_refusal_says_what_the_service_says(
    upstream: ScriptedUpstream, kind: str, status: int, code: str
) -> None:
    upstream.answer = lambda _: refused("It is not so.", kind, status)
    with serving(settings(signed(upstream))) as base:
        reply = respond(base, model="m")
    assert (reply.status, reply.error["message"]) == (status, "It is not so.")
    assert (reply.error["type"], reply.error["code"]) == (kind, code)


TEXT = [converse.start(), converse.delta(0, text="Hel")]
REST = [converse.delta(0, text="lo"), converse.stop(0), *converse.end()]


@pytest.mark.parametrize("wrong", ["cut", "checksum", "length", "exception"])
def test_a_stream_that_goes_wrong_fails_its_response(upstream: ScriptedUpstream, wrong: str) -> None:
    begun, rest = b"".join(converse.messages(TEXT)), b"".join(converse.messages(REST))
    bad = {
        "cut": rest[:20],
        "checksum": rest[:30] + b"?" + rest[31:],
        "length": b"\xff" * 12 + rest,
        "exception": b"".join(converse.messages([{"modelStreamErrorException": {"message": "Lost."}}])),
    }[wrong]
    upstream.answer = lambda _: Script([begun, bad], headers=converse.HEADERS)
    with serving(settings(signed(upstream))) as base:
        reply = stream(base, model="m")
    assert reply.final["status"] == "failed"
    assert reply.final["output"][0]["content"][0]["text"] == "Hel"
    assert violations(reply) == []


def test_a_stream_is_read_byte_by_byte(upstream: ScriptedUpstream) -> None:
    data = b"".join(converse.messages([*TEXT, *REST]))
    upstream.answer = lambda _: Script(
        [data[at : at + 1] for at in range(len(data))], headers=converse.HEADERS
    )
    with serving(settings(signed(upstream))) as base:
        reply = stream(base, model="m")
    assert (said_by(reply), reply.final["usage"]["total_tokens"]) == ("Hello", 5)


def test_a_rule_sees_what_a_model_would(upstream: ScriptedUpstream) -> None:
    seen: list[Asked] = []

    def rule(asked: Asked) -> Said:
        seen.append(asked)
        return Said("Yes.")

    strict(upstream, rule)
    with serving(settings(signed(upstream))) as base:
        stream(base, model="m", input=prompt(3), tools=[LOOK])
    assert seen == [Asked(3, 0, {"look": "function"})]
