"""Keys are removed from an upstream's messages, in the forms in which servers quote them."""

import os
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from random import Random
from urllib.parse import quote

import pytest

from openresponses_server.observation.recordings.masking import Pieces, Secrets, header_secrets
from openresponses_server.settings import SettingsError

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


@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        (["b" * 300 + "a" * 300 + "b" * 300], "a"),
        (["b" * 171 + "a" * 681 + "b" * 171], "a"),  # two thirds but one
        (["a" * n + "b" * n + "a" * n for n in range(6, 60)], "b"),
        (["a" * n for n in range(16, 100)], "a"),
        (["ab" * n for n in range(8, 50)], "abababa"),
        ([f"{n:030}" for n in range(250)], "0"),
    ],
)
def test_a_character_is_read_once_however_many_secrets_there_are(secrets: list[str], text: str) -> None:
    """The worst texts begin the middles of the secrets everywhere, and go on with them nowhere."""
    pieces = Pieces([each.lower() for each in secrets])
    pieces.spans(text * 20_000)
    assert 0 < pieces.read <= len(text) * 20_000


def test_a_text_without_secrets_is_read_by_the_quick_automaton_alone() -> None:
    pieces = Pieces([f"{KEY}{n:03}".lower() for n in range(250)])
    assert pieces.spans("The quick brown fox jumps over the lazy dog. " * 2_000) == []
    assert pieces.read == 0


def found_one_by_one(secrets: list[str], text: str) -> list[tuple[int, int]]:
    """The law, slowly: every piece of two thirds of a long one, every short one as it is."""
    short = [each for each in secrets if len(each) < 16]
    spans = [(at, at + len(each)) for each in short for at in range(len(text)) if text.startswith(each, at)]
    for each in secrets:
        if len(each) >= 16:
            least = len(each) - len(each) // 3
            spans += [
                (at, at + size)
                for size in range(least, len(each) + 1)
                for at in range(len(text) - size + 1)
                if text[at : at + size].lower() in each.lower()
            ]
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


@pytest.mark.parametrize("seed", range(60))
def test_what_is_found_is_what_the_law_says(seed: int) -> None:
    """Secrets of few letters, which overlap each other and themselves."""
    draw = Random(seed)
    letters = draw.choice(["ab", "abc", "aAbB", "xyz ", "a😀"])

    def word(shortest: int, longest: int) -> str:
        return "".join(draw.choices(letters, k=draw.randint(shortest, longest)))

    for _ in range(10):
        secrets = [word(4, 28) for _ in range(draw.randint(1, 4))]
        bits = [
            *secrets,
            *(each[2:-2] for each in secrets),
            *(each[:-4] for each in secrets),
            "-",
            word(1, 9),
        ]
        text = "".join(draw.choices(bits, k=8))
        assert Secrets(secrets).spans(text) == found_one_by_one(secrets, text), (secrets, text)


def test_a_character_beyond_the_first_plane_breaks_no_memory() -> None:
    """In a process of its own, which ends if it frees memory that it has not been given."""
    code = f"""
from openresponses_server.observation.recordings.masking import Secrets
for secrets in (["{KEY}"], ["s3cret"]):
    assert Secrets(secrets).out_of("\\U0001f600" * 100_000 + secrets[0]).endswith("\\U0001f600[key]")
"""
    environment = {**os.environ, "PYTHONMALLOC": "debug", "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_a_secret_over_two_blocks_is_found() -> None:
    for before in range(65_530 - len(KEY), 65_540):
        assert Secrets([KEY, "s3cret"]).spans("-" * before + KEY + "s3cret") == [
            (before, before + len(KEY)),
            (before + len(KEY), before + len(KEY) + 6),
        ]


def test_secrets_of_configured_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_TOKEN", "t" * 20)
    secrets = header_secrets(
        {
            "X-Gateway": "Token ${GATEWAY_TOKEN}",
            "Authorization": "Bearer of-the-file-itself",
            "anthropic-beta": "prompt-caching-2024-07-31",
        }
    )
    assert set(secrets) == {
        f"Token {'t' * 20}",
        "t" * 20,
        "Bearer of-the-file-itself",
        "of-the-file-itself",
    }
    with pytest.raises(SettingsError, match="MISSING"):
        header_secrets({"x": "${MISSING}"})
