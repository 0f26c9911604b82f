"""Files and images that a request names by their addresses, fetched for an upstream (law S10)."""

import asyncio
import base64
import gzip
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from openresponses_server.http.client.connect_options import ConnectOptions
from openresponses_server.http.client.fetching import (
    FetchError,
    NotPublic,
    PublicConnector,
    fetch_file,
    is_public,
)
from openresponses_server.http.client.pool import Connector
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.tasks import OWNER
from tests.support import dialect_scripts as scripts
from tests.support.fetched_files import PUBLIC, Files
from tests.support.serving import respond, serving
from tests.support.upstream import Script, ScriptedUpstream

PDF = b"%PDF-1.7 a file"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        *((each, False) for each in ("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.1.1")),
        *((each, False) for each in ("0.0.0.0", "100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1")),
        *((each, False) for each in ("240.0.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fe80::1%eth0")),
        *((each, False) for each in ("fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1")),
        # an IPv4 address within: mapped, compatible, translated, NAT64, 6to4, Teredo
        *((each, False) for each in ("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1")),
        *((each, False) for each in ("::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1")),
        *((each, False) for each in ("2002:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe")),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::808:808", True),
        ("2002:808:808::1", True),
        # services of clouds that are there inside alone, some at addresses that look public
        *((each, False) for each in ("169.254.169.254", "169.254.170.2", "169.254.0.23", "169.254.42.42")),
        *((each, False) for each in ("192.0.0.192", "192.0.0.9", "168.63.129.16", "100.100.100.200")),
        *((each, False) for each in ("192.80.8.124", "161.26.0.7", "100.96.0.96", "fd20:ce::254")),
        *((each, False) for each in ("fd00:c1::a9fe:a9fe", "fd00:42::42", "fe80::a9fe:a9fe")),
        *((each, False) for each in ("::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::1")),
        *((each, False) for each in ("::ffff:192.0.0.192", "64:ff9b::c000:c0", "2002:c000:c0::1")),
        *((each, False) for each in ("64:ff9b::6464:64c8", "::ffff:100.100.100.200")),
        # by IANA's tables, of which some releases of Python have older ones
        *((each, False) for each in ("3fff::1", "3fff:fff::1", "2001:2::1", "2001:20::1", "5f00::1")),
        *((each, False) for each in ("100::1", "4000::1", "192.88.99.1", "2001::1", "2001:1::1")),
        *((each, True) for each in ("168.63.129.15", "192.0.1.1", "3ffe:ffff::1", "2620:4f:8000::1")),
        *((each, True) for each in ("2001:4860:4860::8888", "2001:200::1", "100.128.0.1", "223.255.255.1")),
        *((each, False) for each in ("", "localhost", "127.1", "0x7f.1", "2130706433")),
    ],
)
def test_s10_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


async def fetched(url: str, most: int = 10_000, seconds: float = 5) -> bytes:
    return (await fetch_file(url, lambda media: media == "application/pdf", most=most, seconds=seconds)).data


async def refused(url: str, most: int = 10_000, seconds: float = 5) -> str:
    with pytest.raises(FetchError) as raised:
        await fetched(url, most, seconds)
    return str(raised.value)


NOT_PUBLIC = "its server can't be reached at a public address"


async def test_a_file_is_fetched_without_anything_of_ours(files: Files) -> None:
    url = files.serve("/a.pdf", PDF)
    assert await fetched(f"{url}?x=1") == PDF
    ((path, headers),) = files.seen
    assert path == "/a.pdf?x=1"
    assert not {"authorization", "cookie"} & {line.partition(":")[0].lower() for line in headers.splitlines()}


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/a.pdf",
        "http://[::1]:{port}/a.pdf",
        "http://[::ffff:127.0.0.1]:{port}/a.pdf",
        "http://169.254.169.254/latest/meta-data/",
        "http://0.0.0.0:{port}/a.pdf",
        "http://inside.example:{port}/a.pdf",
    ],
)
async def test_s10_no_address_of_this_network(files: Files, lookups: Any, url: str) -> None:
    files.serve("/a.pdf", PDF)
    lookups["inside.example"] = [["127.0.0.1"]]
    assert await refused(url.format(port=files.port)) == NOT_PUBLIC
    assert files.seen == []


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "ftp://files.example/a", "gopher://files.example/", "data:text/plain,x", ""),
        *("//files.example/a", "http://", "javascript:alert(1)", "http:///etc/passwd", "unix:/run/x"),
        *(
            "http://user:word@files.example/a",
            "http://files.example\\@127.0.0.1/a",
            "http://a/" + "x" * 9_000,
        ),
        *("http://files.example:99999/a", "http://[::1/a", "http://files.example/a\r\nx: y", "http://\x00/"),
    ],
)
async def test_s10_no_address_of_another_kind(files: Files, lookups: Any, url: str) -> None:
    lookups["a"] = lookups["files.example"]
    assert await refused(url)
    assert files.seen == []


@pytest.mark.parametrize(
    "to",
    [
        "http://127.0.0.1:{port}/secret",
        "//127.0.0.1:{port}/secret",
        "http://[::1]:{port}/secret",
        "http://[::ffff:7f00:1]:{port}/secret",
        "http://169.254.169.254/latest",
        "http://inside.example:{port}/secret",
        "file:///etc/passwd",
        "http://user@files.example/secret",
    ],
)
async def test_s10_a_redirect_is_checked_again(files: Files, lookups: Any, to: str) -> None:
    lookups["inside.example"] = [["127.0.0.1"]]
    files.serve("/secret", PDF)
    assert await refused(files.redirect("/go", to.format(port=files.port)))
    assert [path for path, _ in files.seen] == ["/go"]


async def test_redirects_are_followed_and_end(files: Files) -> None:
    files.serve("/end.pdf", PDF)
    files.redirect("/two", "end.pdf")
    assert await fetched(files.redirect("/one", "/two")) == PDF
    assert "redirects more than 5 times" in await refused(files.redirect("/round", "/round"))
    assert await refused(files.redirect("/nowhere", ""))


async def test_s10_a_name_is_looked_up_once_and_that_address_used(files: Files, lookups: Any) -> None:
    """Rebinding: the second look-up would lead inside."""
    lookups["rebinding.example"] = [[PUBLIC], ["127.0.0.1"]]
    files.serve("/a.pdf", PDF)
    assert await fetched(files.url("/a.pdf", "rebinding.example")) == PDF
    assert lookups["rebinding.example"] == [["127.0.0.1"]]


async def test_s10_a_name_with_one_address_inside_is_refused(files: Files, lookups: Any) -> None:
    lookups["both.example"] = [[PUBLIC, "127.0.0.1"]]
    lookups["none.example"] = [[]]
    files.serve("/a.pdf", PDF)
    assert await refused(files.url("/a.pdf", "both.example")) == NOT_PUBLIC
    assert await refused(files.url("/a.pdf", "none.example")) == NOT_PUBLIC
    assert files.seen == []


async def test_s10_size_is_bounded_as_said_and_as_sent(files: Files) -> None:
    assert "larger than 100 bytes" in await refused(files.serve("/said", b"x" * 101), most=100)
    assert await fetched(files.serve("/fits", b"x" * 100), most=100) == b"x" * 100

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/pdf")
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65536)
        except OSError:
            return

    files.answers["/endless"] = endless
    assert "larger than 100000 bytes" in await refused(files.url("/endless"), most=100_000)


async def test_s10_a_compressed_file_is_bounded_uncompressed(files: Files) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    url = files.serve("/bomb", bomb, content_encoding="gzip")
    assert "larger than 100000 bytes" in await refused(url, most=100_000)
    assert await fetched(files.serve("/fine", gzip.compress(PDF), content_encoding="gzip")) == PDF
    assert await refused(files.serve("/odd", PDF, content_encoding="br"))


async def test_s10_a_slow_file_has_its_time(files: Files) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/pdf")
        handler.send_header("content-length", "1000")
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(0.05)
        except OSError:
            return

    files.answers["/slow"] = slow
    assert "did not arrive within 0.5 seconds" in await refused(files.url("/slow"), seconds=0.5)
    files.answers["/silent"] = lambda handler: time.sleep(1)
    assert await refused(files.url("/silent"), seconds=0.3)


async def test_other_types_and_statuses(files: Files) -> None:
    assert "its type is not" in await refused(files.serve("/page", b"<html>", "text/html; charset=utf-8"))
    files.answers["/gone"] = lambda handler: handler.send_error(404)
    assert "status 404" in await refused(files.url("/gone"))
    assert await fetched(files.serve("/loud", PDF, "Application/PDF; x=y")) == PDF


async def test_a_cancelled_fetch_leaves_nothing(files: Files) -> None:
    files.answers["/silent"] = lambda handler: time.sleep(1)
    task = asyncio.create_task(fetched(files.url("/silent")))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as server:
        yield server


def message(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "message", "role": "user", "content": list(parts)}]


def data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def test_p32_files_and_images_reach_chat_upstreams_as_bytes(files: Files, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(scripts.text("chat", "ok"))
    pdf, png = files.serve("/papers/a.pdf", PDF), files.serve("/b.png", b"png", "image/png")
    settings = UpstreamSettings(url=upstream.url, fetch=["files", "images"])
    question = message(
        {"type": "input_file", "file_url": pdf},
        {"type": "input_file", "file_url": pdf, "filename": "mine.pdf"},
        {"type": "input_image", "image_url": png},
        {"type": "input_image", "image_url": data_url("image/png", b"own")},
    )
    with serving(Settings(upstreams=[settings])) as base:
        first = respond(base, model="m", input=question)
        assert first.json["status"] == "completed", first.json
        assert "openresponses-losses" not in first.headers
        respond(base, model="m", input="and?", previous_response_id=first.json["id"])
    parts = upstream.received[0].body["messages"][0]["content"]
    assert parts == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url("application/pdf", PDF)}},
        {"type": "file", "file": {"filename": "mine.pdf", "file_data": data_url("application/pdf", PDF)}},
        {"type": "image_url", "image_url": {"url": data_url("image/png", b"png")}},
        {"type": "image_url", "image_url": {"url": data_url("image/png", b"own")}},
    ]
    assert upstream.received[1].body["messages"][0]["content"] == parts  # of the turn before, fetched again
    assert len(files.seen) == 4  # an address of one request is fetched once


def test_p32_a_messages_upstream_gets_bytes_too(files: Files, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(scripts.text("anthropic", "ok"))
    settings = UpstreamSettings(url=upstream.url, dialect="anthropic", fetch=["files"])
    with serving(Settings(upstreams=[settings])) as base:
        respond(
            base, model="m", input=message({"type": "input_file", "file_url": files.serve("/a.pdf", PDF)})
        )
    source = upstream.last("m").body["messages"][0]["content"][0]["source"]
    assert source == {
        "type": "base64",
        "media_type": "application/pdf",
        "data": base64.b64encode(PDF).decode(),
    }


def test_s10_p32_nothing_is_fetched_unless_the_operator_allows_it(
    files: Files, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = Script(scripts.text("chat", "ok"))
    png, pdf = files.serve("/b.png", b"png", "image/png"), files.serve("/a.pdf", PDF)
    question = message({"type": "input_image", "image_url": png}, {"type": "input_file", "file_url": pdf})
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
        answer = respond(base, model="m", input=question)
    assert "input_file" in answer.headers["openresponses-losses"]
    assert files.seen == []
    images = UpstreamSettings(url=upstream.url, fetch=["images"])
    with serving(Settings(upstreams=[images])) as base:
        respond(base, model="m", input=question)
    assert [path for path, _ in files.seen] == ["/b.png"]


def test_p32_what_can_not_be_fetched_is_a_400_and_placed(files: Files, upstream: ScriptedUpstream) -> None:
    settings = UpstreamSettings(url=upstream.url, fetch=["files", "images"])
    limits = Limits(fetched_files=2, fetched_bytes=1000)
    good = [files.serve(f"/{number}.pdf", b"x" * 400) for number in range(3)]
    rows: list[tuple[list[dict[str, Any]], str, str]] = [
        ([{"type": "input_file", "file_url": "http://127.0.0.1/a"}], "content[0].file_url", NOT_PUBLIC),
        (
            [{"type": "input_text", "text": "q"}, {"type": "input_image", "image_url": good[0]}],
            "content[1].image_url",
            "its type is not",
        ),
        (
            [{"type": "input_file", "file_url": each} for each in good],
            "content[2].file_url",
            "at most 2 files",
        ),
        (
            [{"type": "input_file", "file_url": files.serve("/big.pdf", b"x" * 1001)}],
            "content[0].file_url",
            "larger than 1000 bytes",
        ),
    ]
    with serving(Settings(upstreams=[settings], limits=limits)) as base:
        for parts, place, reason in rows:
            answer = respond(base, model="m", input=message(*parts))
            error = answer.json["error"]
            assert (answer.status, error["param"]) == (400, f"input[0].{place}")
            assert reason in error["message"]
    assert upstream.received == []


def test_s10_names_whose_servers_do_not_answer_hold_nobody_else_up(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up, over = socket.getaddrinfo, threading.Event()

    def slow(host: str, *args: Any, **options: Any) -> Any:
        if host.startswith("slow"):
            assert over.wait(60)
        return look_up("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def found(owner: str, connector: type[Connector], host: str) -> Any:
        OWNER.set(owner)
        return await connector(ConnectOptions())._look_up(host, 80)

    async def main() -> None:
        waiting = [
            asyncio.create_task(found("greedy", PublicConnector, f"slow{number}.example"))
            for number in range(40)
        ]
        await asyncio.sleep(0)
        upstream = asyncio.create_task(found("greedy", Connector, "upstream.example"))
        assert await upstream
        with pytest.raises(NotPublic):  # it was found
            await asyncio.create_task(found("another", PublicConnector, "files.example"))
        assert not any(task.done() for task in waiting)
        for task in waiting[1:]:
            task.cancel()
        over.set()
        with pytest.raises(NotPublic):
            await waiting[0]
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(main())
