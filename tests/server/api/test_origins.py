"""Law S10: without keys only known hosts are answered, and no other server's web page ever is."""

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus

from openresponses_server.settings import Settings, SettingsError, load_settings
from openresponses_server.settings.files import hashed
from openresponses_server.settings.hosts import authority_of, host_name, is_loopback
from tests.support.serving import Reply, call, serving
from tests.support.sockets import opened_socket

PAGE = "https://app.example"
KEY = {"authorization": "Bearer sk-one"}
KEYS = [hashed("sk-one")]
ASKED = {"model": "demo", "input": "Hello"}


@pytest.fixture(scope="module")
def keyed() -> Iterator[str]:
    with serving(Settings(api_keys=KEYS, cors_origins=[PAGE])) as base:
        yield base


@pytest.fixture(scope="module")
def named() -> Iterator[str]:
    """Without keys, under a further name."""
    with serving(Settings(allowed_hosts=["Bridge.Example", "fe80::1"], cors_origins=[PAGE])) as base:
        yield base


def asked(base: str, headers: list[tuple[str, str]], path: str = "/v1/models", version: str = "1.1") -> Reply:
    """A GET with these headers and no others."""
    address = urlsplit(base)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    connection._http_vsn_str = f"HTTP/{version}"  # type: ignore[attr-defined]
    connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value.encode("latin-1"))
    connection.endheaders()
    response = connection.getresponse()
    reply = Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    connection.close()
    return reply


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:8080", 200),
        ("localhost.", 200),
        ("localhost.:80", 200),
        ("127.0.0.1:1", 200),
        ("[::1]", 200),
        ("[0:0:0:0:0:0:0:1]:8080", 200),
        ("bridge.example", 200),
        ("BRIDGE.example:443", 200),
        ("[fe80::1]:1", 200),
        ("localhost:", 200),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("localhost.evil.example", 403),
        ("sub.localhost", 403),
        ("127.example.com", 403),
        ("127.0.0.1.evil.example", 403),
        ("0.0.0.0", 403),
        ("localhost@evil.example", 403),
        ("evil.example@localhost", 403),
        ("evil.example#localhost", 403),
        ("localhost, evil.example", 403),
        ("localhost..", 403),
        ("localhost:80:80", 403),
        ("[::1", 403),
        ("::1", 403),
        ("[::1]evil.example", 403),
        ("[fe80::1%lo]", 403),
        ("http://localhost", 403),
        ("lo\xa0calhost", 403),
        ("", 403),
    ],
)
def test_s10_without_keys_only_known_hosts_are_answered(named: str, host: str, status: int) -> None:
    reply = asked(named, [("host", host)])
    assert reply.status == status, reply.body
    if status == 403:
        assert reply.error["code"] == "host_not_allowed"
        assert asked(named, [("host", host)], "/readyz").status == 403
        assert asked(named, [("host", host), ("x-forwarded-host", "localhost")]).status == 403
        assert asked(named, [("host", host), ("forwarded", "host=localhost")]).status == 403


def test_s10_no_host_is_not_a_known_one_and_two_are_a_400(named: str) -> None:
    assert asked(named, [], version="1.0").status == 403
    none = asked(named, [])
    assert (none.status, none.error["code"]) == (400, "invalid_host")
    two = asked(named, [("host", "localhost"), ("host", "evil.example")])
    assert (two.status, two.error["code"]) == (400, "invalid_host")


def test_s10_the_host_that_is_bound_is_known() -> None:
    with serving(Settings(host="127.0.0.2")) as base:
        assert asked(base, [("host", "127.0.0.2:8080")]).status == 200
        assert asked(base, [("host", "127.0.0.3:8080")]).status == 403


def test_s10_with_keys_any_host_is_answered_unless_hosts_are_named(keyed: str) -> None:
    assert asked(keyed, [("host", "bridge.example"), *KEY.items()]).status == 200
    assert asked(keyed, [("host", "bridge.example")]).status == 401
    with serving(Settings(api_keys=KEYS, allowed_hosts=["bridge.example"])) as base:
        assert asked(base, [("host", "bridge.example"), *KEY.items()]).status == 200
        assert asked(base, [("host", "evil.example"), *KEY.items()]).status == 403
        for path in ("/healthz", "/readyz"):
            assert asked(base, [("host", "10.1.2.3:8080")], path).status == 200


ORIGINS = [
    (PAGE, 200),
    (f"{PAGE}:443", 200),
    ("HTTPS://App.Example", 200),
    ("https://evil.example", 403),
    ("http://app.example", 403),
    (f"{PAGE}:8443", 403),
    ("https://app.example.evil.example", 403),
    ("https://app.example@evil.example", 403),
    ("http://localhost:1", 403),
    ("http://localhost", 403),
    ("null", 403),
    ("", 403),
    ("file://", 403),
    ("http://[", 403),
    ("http://[::1", 403),
    ("http://localhost:99999999999", 403),
    ("https://app.example https://evil.example", 403),
    ("vscode-webview://abc", 403),
]


@pytest.mark.parametrize(("origin", "status"), ORIGINS)
def test_s10_pages_of_other_origins_are_refused_with_keys_and_without(
    named: str, keyed: str, origin: str, status: int
) -> None:
    for base in (named, keyed):
        for method, path, body in (("GET", "/v1/models", None), ("POST", "/v1/responses", ASKED)):
            reply = call(base, method, path, body, {"origin": origin, **KEY})
            assert reply.status == status, reply.body
            if status == 403:
                assert reply.error["code"] == "origin_not_allowed"
        if status == 403:
            with pytest.raises(InvalidStatus) as refused, opened_socket(base, {"origin": origin, **KEY}):
                pass
            assert refused.value.response.status_code == 403
        else:
            with opened_socket(base, {"origin": origin, **KEY}) as socket:
                assert socket.turn(input="Hello").final["status"] == "completed"


def test_s10_its_own_pages_may_ask(named: str) -> None:
    port = urlsplit(named).port
    for host, origin in (
        (f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"),
        (f"LOCALHOST:{port}", f"http://localhost:{port}"),
        ("localhost", "http://localhost"),
        ("localhost", "http://localhost:80"),
        ("bridge.example", "https://bridge.example"),  # a proxy speaks TLS for the server
        ("[::1]:80", "http://[::1]"),
    ):
        assert asked(named, [("host", host), ("origin", origin)]).status == 200
    for host, origin in (
        (f"127.0.0.1:{port}", f"http://localhost:{port}"),
        ("localhost:8080", "http://localhost:3000"),
        ("bridge.example:80", "https://bridge.example"),
        ("evil.example:8080", "http://evil.example:8080"),  # a name that is bound to another address
    ):
        assert asked(named, [("host", host), ("origin", origin)]).status == 403


def test_s10_one_foreign_origin_of_two_is_foreign(named: str) -> None:
    origins = [("origin", PAGE), ("origin", "https://evil.example")]
    assert asked(named, [("host", "localhost"), *origins]).status == 403


@pytest.mark.parametrize(
    ("site", "origin", "status"),
    [
        ("cross-site", None, 403),
        ("Cross-Site", None, 403),
        ("cross-site", PAGE, 200),
        ("cross-site", "https://evil.example", 403),
        ("same-site", None, 200),
        ("same-origin", None, 200),
        ("none", None, 200),
    ],
)
def test_s10_what_another_site_sends_without_an_origin_is_refused(
    named: str, keyed: str, site: str, origin: str | None, status: int
) -> None:
    headers = {"sec-fetch-site": site, **KEY} | ({"origin": origin} if origin else {})
    for base in (named, keyed):
        assert call(base, "GET", "/v1/models", headers=headers).status == status
        assert call(base, "POST", "/v1/responses", ASKED, headers).status == status


def test_s10_refusals_have_the_shape_of_their_surface(named: str) -> None:
    reply = call(named, "POST", "/v1/messages", {}, {"origin": "https://evil.example"})
    assert reply.json["type"] == "error"
    assert reply.error["type"] == "permission_error"


def test_s10_every_page_may_ask_where_the_settings_say_so() -> None:
    with serving(Settings(cors_origins=["*"])) as base:
        headers = {"origin": "null", "sec-fetch-site": "cross-site"}
        assert call(base, "GET", "/v1/models", headers=headers).status == 200
        assert asked(base, [("host", "evil.example"), ("origin", "http://evil.example")]).status == 403


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "OPTIONS"])
def test_s10_it_holds_for_every_path_and_method(demo: str, method: str) -> None:
    for path in ("/v1/responses/resp_1", "/v1/responses/resp_1/cancel", "/healthz", "/metrics", "/made/up"):
        assert call(demo, method, path, headers={"origin": "https://evil.example"}).status == 403


def test_hosts_in_settings() -> None:
    assert load_settings(None, allowed_hosts=["bridge.example", "[::2]"]).allowed_hosts[0] == "bridge.example"
    for wrong in ("https://bridge.example", "bridge.example:8080", "a b", "", "*", "[::g]"):
        with pytest.raises(SettingsError, match=r"^allowed_hosts\[1\]: "):
            load_settings(None, allowed_hosts=["a", wrong])


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1")))
    others = ("127.example.com", "127.", "127.1", "0.0.0.0", "::", "localhost.evil", "")
    assert not any(map(is_loopback, others))


def test_places_are_read_in_linear_time() -> None:
    for wrong in ("a" * 300, ":" * 100_000, "[" + ":" * 100_000, "a." * 100_000, "a:" + "1" * 100_000):
        assert authority_of(wrong) is None
    assert host_name("::1") == "::1"


def test_a_host_that_was_answered_vouches_for_no_page(named: str) -> None:
    host = ("host", "localhost:7")
    for _ in range(2):
        assert asked(named, [host]).status == 200
    assert asked(named, [host, ("origin", "https://evil.example")]).error["code"] == "origin_not_allowed"
    assert asked(named, [host, ("sec-fetch-site", "cross-site")]).status == 403
    assert asked(named, [host, ("host", "evil.example")]).status == 400
    assert asked(named, [("host", "evil.example")]).error["code"] == "host_not_allowed"
