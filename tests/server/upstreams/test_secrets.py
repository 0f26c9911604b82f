"""Keys are taken out of what an upstream says, in the forms in which servers quote them."""

import time
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from server.settings import SettingsError
from server.upstreams.secrets import Secrets, header_secrets

KEY = "sk-proj-A1b2C3d4/E5f6+G7h8=I9j0"
SECRETS = Secrets([KEY])


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        KEY.lower(),
        KEY.upper(),
        quote(KEY, safe=""),
        quote(KEY, safe="").lower(),
        quote(KEY),
        KEY[:-8],
        KEY[8:],
        KEY[4:-4],
    ],
)
def test_a_quoted_key_is_taken_out(form: str) -> None:
    assert SECRETS.out_of(f"the key '{form}', twice: {form}.") == "the key '[key]', twice: [key]."


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "Bearer "])
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
def test_a_key_in_base64_is_taken_out_wherever_it_begins(before: str, encode: object) -> None:
    whole = encode(f"{before}{KEY}:x".encode()).decode()  # type: ignore[operator]
    sent = SECRETS.out_of(f"Basic {whole} is wrong")
    assert "[key]" in sent
    assert len(sent) < 30 + len(before) * 2
    assert b64encode(KEY.encode()).decode()[6:20] not in sent


@pytest.mark.parametrize(
    "text", ["", "sk-proj-…", KEY[:12], KEY[-12:], "no key here", "[key]", KEY[:14] + "-" + KEY[14:]]
)
def test_what_is_less_than_two_thirds_of_it_stays(text: str) -> None:
    assert SECRETS.out_of(text) == text


def test_several_secrets_and_short_ones() -> None:
    secrets = Secrets([KEY, "s3cret", None, "", "x", KEY + "-longer"])
    assert secrets.out_of(f"x {KEY}-longer s3cret S3CRET") == "x [key] [key] S3CRET"


def test_its_cost_grows_with_the_text() -> None:
    """The worst text begins the middle of the key everywhere, and goes on with it nowhere."""

    secrets = Secrets(["b" * 300 + "a" * 300 + "b" * 300])

    def seconds(size: int) -> float:
        began = time.process_time()
        assert secrets.out_of("a" * size) == "a" * size
        return time.process_time() - began

    seconds(10_000)
    assert seconds(160_000) < 40 * max(seconds(20_000), 0.001)


def test_secrets_of_configured_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_TOKEN", "t" * 20)
    found = header_secrets(
        {
            "X-Gateway": "Token ${GATEWAY_TOKEN}",
            "Authorization": "Bearer of-the-file-itself",
            "anthropic-beta": "prompt-caching-2024-07-31",
        }
    )
    assert set(found) == {
        f"Token {'t' * 20}",
        "t" * 20,
        "Bearer of-the-file-itself",
        "of-the-file-itself",
    }
    with pytest.raises(SettingsError, match="MISSING"):
        header_secrets({"x": "${MISSING}"})
