"""Tokens of an identity provider as keys (law S7), with its keys on loopback, and what an attacker sends."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from openresponses_server.errors import HttpError
from openresponses_server.http.access import Access, KeysWanted
from openresponses_server.http.auth import Keys
from openresponses_server.http.tokens import Tokens
from openresponses_server.limits.owners import DEFAULT, KeyLimits, OwnerLimits
from openresponses_server.settings import OidcSettings, Settings, SettingsError, load_settings
from tests.support.documents import blocks_of
from tests.support.serving import call, respond, serving

pytestmark = pytest.mark.anyio
ISSUER = "https://login.example"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, name: str | None, **more: Any) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    data = dict(kind.to_jwk(key.public_key(), as_dict=True))
    return data | ({} if name is None else {"kid": name}) | more


class Provider:
    """Its keys at an address; `asked` are the paths of requests."""

    def __init__(self) -> None:
        self.keys: Any = [jwk(RSA, "one")]
        self.status = 200
        self.asked: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                body = json.dumps({"keys": provider.keys}).encode()
                self.send_response(provider.status)
                self.send_header("content-length", str(len(body)))
                self.send_header("location", "/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"

    def settings(self, **more: Any) -> OidcSettings:
        return OidcSettings(issuer=ISSUER, audience=["bridge"], jwks=self.url, **more)


@pytest.fixture
def provider() -> Iterator[Provider]:
    issuer = Provider()
    yield issuer
    issuer.server.shutdown()
    issuer.server.server_close()


def claims(**more: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": "bridge", "sub": "alice", "exp": time.time() + 600, **more}


def token(
    key: Any = RSA, name: str | None = "one", algorithm: str = "RS256", headers: Any = None, **more: Any
) -> str:
    head = {} if name is None else {"kid": name}
    payload = {field: value for field, value in claims(**more).items() if value is not None}
    return jwt.encode(payload, key, algorithm, headers=head | (headers or {}))


async def tokens_of(provider: Provider, limits: OwnerLimits | None = None, **more: Any) -> Tokens:
    tokens = Tokens([provider.settings(**more)], limits or OwnerLimits())
    await tokens.issuers[ISSUER].fetch()
    return tokens


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def hs_with(secret: bytes, algorithm: str = "HS256") -> str:
    """Signed with what everybody has, as if it were a secret."""
    signed = f"{part({'alg': algorithm, 'kid': 'one', 'typ': 'JWT'})}.{part(claims())}"
    return f"{signed}.{part(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


async def test_a_token_is_its_owners_key(provider: Provider) -> None:
    tokens = await tokens_of(provider)
    first = tokens.access(token())
    second = tokens.access(token(jti="another"))
    other = tokens.access(token(sub="bob"))
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.owner == second.owner != other.owner
    assert first.owner[0] == "t", "no hash of a key begins so"
    assert first.models is None
    assert len(provider.asked) == 1


ATTACKS = {
    "no signature": f"{part({'alg': 'none'})}.{part(claims())}.",
    "none, with a name": f"{part({'alg': 'none', 'kid': 'one'})}.{part(claims())}.",
    "None in capitals": f"{part({'alg': 'NONE', 'kid': 'one'})}.{part(claims())}.",
    "HS256 with the public key": hs_with(PEM),
    "HS256 with the public key's set": hs_with(json.dumps(jwk(RSA, "one")).encode()),
    "HS256 with nothing": hs_with(b""),
    "HS256 called RS256": hs_with(PEM, "RS256"),
    "another's key": token(OTHER),
    "an algorithm that is not accepted": token(algorithm="RS512"),
    "PS256 for RS256": token(algorithm="PS256"),
    "its own key in the header": token(OTHER, headers={"jwk": jwk(OTHER, "one")}),
    "expired": token(exp=time.time() - 60),
    "without an end": token(exp=None),
    "an end that is no number": f"{token().split('.')[0]}.{part(claims(exp='x'))}.{token().split('.')[2]}",
    "not yet": token(nbf=time.time() + 86_400),
    "made later": token(iat=time.time() + 86_400),
    "for another": token(aud="other"),
    "for nobody": token(aud=None),
    "without an owner": token(sub=None),
    "an empty owner": token(sub=""),
    "a long owner": token(sub="x" * 1025),
    "an extension that has to be known": token(headers={"crit": ["exp"]}),
    "a name of another kind": f"{part({'alg': 'RS256', 'kid': ['one']})}.{part(claims())}.{part(b'x')}",
    "an empty signature": token().rpartition(".")[0] + ".",
    "no algorithm": f"{part({'kid': 'one'})}.{part(claims())}.{part(b'x')}",
    "an algorithm of another kind": f"{part({'alg': ['RS256'], 'kid': 'one'})}.{part(claims())}.{part(b'x')}",
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_token_that_is_not_the_issuers_is_refused(provider: Provider, name: str) -> None:
    tokens = await tokens_of(provider)
    assert tokens.access(token()) is not None
    with pytest.raises(HttpError) as caught:
        Keys([], tokens=tokens).owner({"authorization": f"Bearer {ATTACKS[name]}"})
    assert (caught.value.http_status, caught.value.message) == (401, "The API key is not valid.")
    assert not isinstance(caught.value, KeysWanted)


@pytest.mark.parametrize(
    "given",
    [
        "a.b.c",
        "..",
        f"{part({'alg': 'RS256'})}.{part(claims(iss='https://evil.example'))}.x",
        f"{part({'alg': 'RS256'})}.{part(claims(iss=[ISSUER]))}.x",
        f"{part({'alg': 'RS256'})}.{part([ISSUER])}.x",
        f"{part(b'[' * 9000)}.{part(b'[' * 3000)}.x",
        "x" * 17_000 + "..",
        "ä.b.c",
    ],
)
async def test_what_is_no_token_of_an_issuer_is_none(provider: Provider, given: str) -> None:
    tokens = await tokens_of(provider)
    assert tokens.access(given) is None
    assert len(provider.asked) == 1


async def test_addresses_in_a_token_are_never_asked(provider: Provider) -> None:
    tokens = await tokens_of(provider)
    lured = {"jku": provider.url + "/evil", "x5u": provider.url + "/evil"}
    assert tokens.access(token(headers=lured)) is not None, "they are not read"
    with pytest.raises(HttpError):
        tokens.access(token(OTHER, headers=lured))
    assert provider.asked == ["/keys"]


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits")
@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "k": part(b"secret"), "kid": "one"},
        jwk(RSA, "one", use="enc"),
        jwk(RSA, "one", alg="RS512"),
        jwk(WEAK, "one"),
        {"kty": "RSA", "n": "AQAB", "kid": "one"},
        {"kty": 5, "kid": "one"},
    ],
)
async def test_a_key_that_is_not_for_this_verifies_nothing(provider: Provider, key: dict[str, Any]) -> None:
    provider.keys = [key]
    tokens = await tokens_of(provider)
    for each in (token(), token(WEAK), hs_with(b"secret")):
        with pytest.raises(HttpError):
            tokens.access(each)


async def test_a_token_without_a_key_s_name_has_the_only_one_and_one_of_an_ec_key(provider: Provider) -> None:
    tokens = await tokens_of(provider)
    assert tokens.access(token(name=None)) is not None
    provider.keys = [jwk(RSA, "one"), jwk(EC, "two")]
    tokens = await tokens_of(provider)
    assert tokens.access(token(EC, "two", "ES256")) is not None
    for each in (token(name=None), token(EC, "one", "ES256"), token(RSA, "two")):
        with pytest.raises(HttpError):
            tokens.access(each)
    provider.keys = [jwk(RSA, "one"), jwk(OTHER, "one")]
    with pytest.raises(HttpError):
        (await tokens_of(provider)).access(token())


async def test_a_new_key_is_fetched_at_once_and_made_up_names_at_most_every_ten_seconds(
    provider: Provider,
) -> None:
    tokens = await tokens_of(provider)
    issuer = tokens.issuers[ISSUER]
    now = time.time()
    issuer._clock = lambda: now
    first_token = token()
    assert tokens.access(first_token) is not None
    provider.keys = [jwk(OTHER, "two")]
    for number in range(50):
        with pytest.raises(HttpError) as caught:
            tokens.access(token(OTHER, f"made up {number}"))
        assert not isinstance(caught.value, KeysWanted)
    assert len(provider.asked) == 1
    now += 11
    with pytest.raises(KeysWanted) as error:
        tokens.access(token(OTHER, "two"))
    await error.value.fetch()
    assert tokens.access(token(OTHER, "two")) is not None
    assert len(provider.asked) == 2
    with pytest.raises(HttpError):
        tokens.access(first_token)


@pytest.mark.parametrize(("status", "keys"), [(500, []), (302, []), (200, "x"), (200, ["x"]), (200, None)])
async def test_keys_that_cant_be_read_change_nothing(provider: Provider, status: int, keys: Any) -> None:
    tokens = await tokens_of(provider)
    provider.status, provider.keys = status, keys
    await tokens.issuers[ISSUER].fetch()
    assert tokens.access(token()) is not None
    never = await tokens_of(provider)
    with pytest.raises(HttpError) as caught:
        never.access(token())
    assert caught.value.http_status == 503
    assert set(provider.asked) == {"/keys"}, "a redirect is not followed"


async def test_models_and_limits_are_those_of_the_claims(provider: Provider) -> None:
    limits = OwnerLimits()
    tokens = await tokens_of(
        provider,
        limits,
        models_claim="models",
        limits_claims={"requests_per_minute": "rpm", "usd_per_day": "usd"},
    )
    accesses: list[Access | None] = [
        tokens.access(token(models=models)) for models in (["a", "b-*"], "a b-*", None, [])
    ]
    assert [each.models for each in accesses if each] == [("a", "b-*"), ("a", "b-*"), (), ()]
    assert not any(each.admits("c") for each in accesses if each)
    owner = accesses[0].owner  # type: ignore[union-attr]
    assert limits.of(owner) == DEFAULT
    tokens.access(token(rpm=5))
    assert limits.of(owner) == KeyLimits(requests_per_minute=5)
    tokens.access(token(usd=0.5))
    assert limits.of(owner) == KeyLimits(usd_per_day=0.5)
    for wrong in ({"usd": "1"}, {"usd": True}, {"usd": 0}, {"usd": -1.5}, {"usd": 1e300}, {"usd": 1e-13}):
        with pytest.raises(HttpError):
            tokens.access(token(**wrong))
    for wrong in ({"models": 5}, {"models": [5]}, {"rpm": "5"}, {"rpm": True}, {"rpm": 0}, {"rpm": 2**60}):
        with pytest.raises(HttpError):
            tokens.access(token(**wrong))


async def test_a_token_ends_while_it_is_used_and_the_other_clock_may_be_a_little_off(
    provider: Provider,
) -> None:
    tokens = await tokens_of(provider)
    issuer = tokens.issuers[ISSUER]
    start = now = time.time()
    issuer._clock = lambda: now
    credential = token(exp=start + 10)
    access = tokens.access(credential)
    assert access is not None
    now = start + 39
    assert tokens.access(credential) is not None
    assert access.again() is access
    now = start + 41
    assert access.again() is None
    with pytest.raises(HttpError):
        tokens.access(credential)


def test_a_server_accepts_tokens_beside_its_keys_and_fetches_a_new_key_for_a_request(
    provider: Provider,
) -> None:
    provider.status = 500
    with serving(Settings(oidc=[provider.settings(models=["demo"])])) as base:
        refused = call(base, "GET", "/v1/models", headers={"authorization": f"Bearer {token()}"})
        assert refused.status == 503
        assert call(base, "GET", "/v1/models", headers={"authorization": "Bearer x"}).status == 401
        assert call(base, "GET", "/v1/models").status == 401
    provider.status, provider.keys = 200, [jwk(RSA, "one")]
    with serving(Settings(oidc=[provider.settings(models=["demo"])])) as base:
        alice = {"authorization": f"Bearer {token()}"}
        reply = respond(base, alice, model="demo")
        assert reply.status == 200
        assert respond(base, alice, model="demo-2").status == 403
        path = f"/v1/responses/{reply.json['id']}"
        assert call(base, "GET", path, headers={"x-api-key": token(jti="2")}).status == 200
        assert call(base, "GET", path, headers={"x-api-key": token(sub="bob")}).status == 404
        assert call(base, "GET", path, headers={"x-api-key": token(OTHER)}).status == 401


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ('jwks = "http://login.example/keys"', "is not an https:// address"),
        ('jwks = "file:///etc/passwd"', "is not an https:// address"),
        ('jwks = "https://x"\nalgorithms = ["HS256"]', "algorithms"),
        ('jwks = "https://x"\nalgorithms = ["none"]', "algorithms"),
        ('jwks = "https://x"\nalgorithms = []', "algorithms"),
    ],
)
def test_settings_that_would_be_unsafe_are_refused(tmp_path: Any, change: str, why: str) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text(f'[[oidc]]\nissuer = "i"\naudience = ["a"]\n{change}\n')
    with pytest.raises(SettingsError, match=why):
        load_settings(path)


def test_the_config_of_the_page_can_be_used(tmp_path: Any) -> None:
    (block,) = [each for each in blocks_of("docs/keys.md") if "identity provider" in each.heading]
    path = tmp_path / "bridge.toml"
    path.write_text(block.code)
    (issuer,) = load_settings(path).oidc
    assert (issuer.models_claim, issuer.limits_claims) == ("models", {"requests_per_minute": "rpm"})
    assert load_settings(path).asks_for_keys
