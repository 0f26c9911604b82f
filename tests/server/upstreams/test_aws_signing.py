"""Credentials that expire: found once for all that wait, again when they are refused, never on the loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.aws_signing import AwsSigner, Frozen, Sign
from tests.support.clocks import Clock

pytest.importorskip("botocore")
OLD, NEW = (
    Frozen("AKIAOLD", "old-secret-of-forty", "old-token"),
    Frozen("AKIANEW", "new-secret-of-forty", None),
)
URL = "https://bedrock-runtime.eu-west-3.amazonaws.com/model/a%3A0/converse"


def signer(find: Any, clock: Clock) -> AwsSigner:
    return AwsSigner("b", "bedrock", "eu-west-3", find, clock)


async def signature(sign: Sign) -> dict[str, str]:
    return await sign("POST", URL, {"content-type": "application/json", "x-request-id": "r"}, b"{}")


async def key_of(sign: Sign) -> str:
    return (await signature(sign))["authorization"].partition("Credential=")[2].partition("/")[0]


@pytest.mark.anyio
async def test_what_signs_a_request_is_in_headers_of_its_own() -> None:
    headers = await signer(lambda: OLD, Clock()).try_with(signature)
    assert headers.keys() == {"authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"}
    assert headers["x-amz-security-token"] == "old-token"
    signed = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
    assert signed == "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token"


@pytest.mark.anyio
async def test_all_that_wait_get_what_is_found_once_and_off_the_loop() -> None:
    credentials, threads, may_go_on = [OLD], [], threading.Event()

    def find() -> Frozen:
        threads.append(threading.current_thread())
        assert may_go_on.wait(60)
        return credentials[0]

    clock = Clock()
    signing = signer(find, clock)
    waiting = [asyncio.ensure_future(signing.try_with(key_of)) for _ in range(5)]
    given_up = waiting.pop()
    await asyncio.sleep(0)
    given_up.cancel()
    may_go_on.set()
    assert await asyncio.gather(*waiting) == ["AKIAOLD"] * 4
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
    credentials[0] = NEW
    assert await signing.try_with(key_of) == "AKIAOLD"
    clock.now += 61
    assert await signing.try_with(key_of) == "AKIANEW"
    assert len(threads) == 2
    assert signing.secrets == [OLD.secret_key, OLD.token, NEW.secret_key]


@pytest.mark.anyio
@pytest.mark.parametrize("again", [True, False])
async def test_refused_credentials_are_looked_for_once_more(again: bool) -> None:
    credentials, keys = [OLD, NEW, NEW], []
    signing = signer(lambda: credentials.pop(0), Clock())

    async def work(sign: Sign) -> str:
        keys.append(key := await key_of(sign))
        if key == "AKIAOLD":
            raise UpstreamError(403, "expired", code=UpstreamError.AUTHENTICATION)
        return key

    if again:
        assert await signing.try_with(work) == "AKIANEW"
    else:
        with pytest.raises(UpstreamError, match="expired"):
            await signing.try_with(work, again=False)
        assert await signing.try_with(work) == "AKIANEW"
    assert keys == ["AKIAOLD", "AKIANEW"]


@pytest.mark.anyio
async def test_the_same_credentials_are_refused_once() -> None:
    keys: list[str] = []

    async def work(sign: Sign) -> str:
        keys.append(await key_of(sign))
        raise UpstreamError(403, "no access", code=UpstreamError.AUTHENTICATION)

    with pytest.raises(UpstreamError, match="no access"):
        await signer(lambda: OLD, Clock()).try_with(work)
    assert keys == ["AKIAOLD"]


@pytest.mark.anyio
async def test_what_is_not_found_is_told_without_its_texts() -> None:
    calls: list[int] = []

    def find() -> Frozen | None:
        calls.append(1)
        if len(calls) == 2:
            return None
        raise OSError("the secret is old-secret-of-forty")

    clock = Clock()
    signing = signer(find, clock)
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(UpstreamError) as caught:
                await signing.try_with(key_of)
            assert (caught.value.http_status, caught.value.code) == (502, UpstreamError.UNREACHABLE)
        assert len(calls) == 1  # a failure is kept for a moment
        clock.now += 2
        with pytest.raises(UpstreamError):
            await signing.try_with(key_of)
    assert len(calls) == 2
    assert [log["cause"] for log in logs] == ["OSError", "there are none"]
    assert "forty" not in str(logs)
    await signing.close()
