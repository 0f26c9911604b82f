"""`TokenEstimator`: near an unknown tokenizer after some requests, within bounds, and not misled by wrong
counts."""

import base64
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.models.tokens import (
    MAX_TEXTS,
    MOST,
    ContentCache,
    Cost,
    Measured,
    TokenCounter,
    TokenEstimator,
    measured_items,
    measured_request,
    request_tokens,
)
from openresponses_bridge.protocol.codec import decode_request, encode
from tests.support.tokens import text_tokens

HERE = Path(__file__).resolve().parents[3]
CJK = (
    "今天的会议改到下午三点，请把文件提前发给大家。我们会先讨论上个月的结果，然后决定下一步做什么。",
    "駅前の新しい図書館は、来週の月曜日から朝九時に開きます。自転車は裏の駐輪場に止めてください。",
    "우리 가족은 주말마다 산에 올라가서 점심을 먹고, 저녁에는 집에서 같이 영화를 봅니다.",
)

RUSSIAN = "Встреча перенесена на три часа, пожалуйста, отправьте всем документы заранее. "
PROSE = (HERE / "docs/keys.md").read_text()
CODE = (HERE / "bridge/openresponses_bridge/emitter/machine.py").read_text()
# a vocabulary of its own kind: pieces of letters, pairs of digits, each sign, line, ideograph and syllable
PIECE = re.compile(r"[A-Za-z]{1,4}|[а-яА-Я]{1,2}|\d{1,2}|\n|[^\sA-Za-z\dа-яА-Я]")
TEXTS = ["", "a", " ", "-", "word", "Hello, how are you?", "word " * 300, PROSE[:1200], CODE[:1200], *CJK]


def counted(text: str) -> int:
    """As the made-up tokenizer has it."""
    return len(PIECE.findall(text))


def some(chance: random.Random, of: str) -> str:
    start = chance.randrange(max(1, len(of) - 4000))
    return of[start : start + chance.randrange(200, 4000)]


def numbers(chance: random.Random) -> str:
    rows = (",".join(f"{chance.random() * 10**4:.2f}" for _ in range(6)) for _ in range(60))
    return "\n".join(rows)


def rows(chance: random.Random) -> str:
    records = [
        {"id": chance.randrange(10**5), "name": "alpha", "tags": ["red"], "on": True} for _ in range(20)
    ]
    return encode(records).decode()


KINDS: dict[str, Any] = {
    "prose": lambda chance: some(chance, PROSE),
    "code": lambda chance: some(chance, CODE),
    "cjk": lambda chance: chance.choice(CJK) * chance.randrange(2, 30),
    "russian": lambda chance: RUSSIAN * chance.randrange(3, 40),
    "numbers": numbers,
    "json": rows,
}
MIXES = [
    ["prose"], ["code"], ["cjk"], ["russian"], ["numbers"], ["json"],
    ["prose", "code"], ["prose", "cjk"], ["code", "json"], ["code", "russian"],
    ["prose", "code", "json", "cjk"],
]  # fmt: skip


def requests(seed: int, kinds: list[str], count: int = 60) -> list[str]:
    """Pieces of these kinds, in a random order and of random lengths."""
    chance = random.Random(seed)
    return [
        "\n".join(KINDS[chance.choice(kinds)](chance) for _ in range(chance.randrange(1, 4)))
        for _ in range(count)
    ]


def asked(text: str) -> Measured:
    return measured_request(decode_request(encode({"input": text})))


def measured(text: str) -> tuple[Measured, int]:
    """A request of this text, and what an upstream says of it: seven tokens for the request itself."""
    return asked(text), counted(text) + 7


@pytest.mark.parametrize("kinds", MIXES, ids="+".join)
@pytest.mark.untraced
def test_after_twenty_requests_of_any_kind_the_estimate_is_near(kinds: list[str]) -> None:
    estimator = TokenEstimator()
    after = []
    for number, (what, tokens) in enumerate(map(measured, requests(len(kinds), kinds))):
        if number >= 20:
            after.append(abs(estimator.tokens(what, "made-up") - tokens) / tokens)
        assert estimator.learn("made-up", what, tokens)
    assert sum(after) / len(after) < (0.06 if len(kinds) == 1 else 0.16)


@pytest.mark.parametrize("factor", [0.3, 0.6, 0.9, 1.0, 1.3, 1.9, 3.0])
def test_a_tokenizer_that_differs_by_a_factor_is_met_within_the_bounds(factor: float) -> None:
    estimator = TokenEstimator()
    for text in requests(3, ["prose", "code", "cjk"], 40):
        what = asked(text)
        assert estimator.learn("m", what, round(what.tokens() * factor))
    what = asked(PROSE[:6000])
    expected = what.tokens() * min(max(factor, 1 / MOST), MOST)
    assert abs(estimator.tokens(what, "m") - expected) < 0.05 * expected


def test_what_was_learned_from_one_kind_does_little_harm_to_another() -> None:
    """Scripts are corrected apart: a model that is dear for Chinese is not for code."""
    estimator = TokenEstimator()
    for text in requests(1, ["cjk"], 40):
        what = asked(text)
        assert estimator.learn("m", what, round(what.tokens() * 1.8))
    code = asked(CODE[:3000])
    assert abs(estimator.tokens(code, "m") - code.tokens()) < 0.05 * code.tokens()
    cjk = asked(CJK[0] * 20)
    assert estimator.tokens(cjk, "m") > 1.6 * cjk.tokens()


def test_it_begins_with_the_estimate_and_is_a_counter() -> None:
    counter: TokenCounter = TokenEstimator()
    request = decode_request(encode({"input": "Hello, world!", "instructions": "Be brief."}))
    assert counter.text("Hello, world!") == text_tokens("Hello, world!")
    assert counter.request(request, model="m") == request_tokens(request)
    item = decode_request(encode({"input": [{"type": "message", "role": "user", "content": "Hi"}]})).input[0]
    assert counter.item(item) == measured_items([item]).tokens()


def test_what_one_family_learns_is_its_own_and_its_versions_share_it() -> None:
    estimator = TokenEstimator()
    for text in requests(1, ["cjk"], 20):
        estimator.learn("claude-sonnet-4-5-20250929", *measured(text))
    assert estimator.sample_count("anthropic/claude-sonnet-4-6") == 20
    assert estimator.sample_count("gpt-5") == 0
    assert estimator.text(CJK[0], "claude-sonnet-4-6") > estimator.text(CJK[0], "gpt-5") * 1.2


# ── what teaches nothing ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("tokens", [-5, 0, 1, 10**9, 10**400])
def test_a_count_that_can_not_be_of_this_text_is_not_believed(tokens: int) -> None:
    estimator = TokenEstimator()
    assert not estimator.learn("m", asked("word " * 400), tokens)
    assert estimator.text("word " * 400, "m") == text_tokens("word " * 400)


def test_no_lie_decides_which_counts_are_believed_later() -> None:
    """What can be is measured against the estimate without correction."""
    estimator = TokenEstimator()
    what = asked(PROSE[:3000])
    for _ in range(50):
        assert estimator.learn("m", what, what.tokens() * 4)
    assert estimator.learn("m", what, what.tokens() // 3)
    assert not estimator.learn("m", what, what.tokens() * 5)


ENCODED = base64.b64encode(random.Random(1).randbytes(3000)).decode()
PARTS: dict[str, dict[str, Any]] = {
    "image": {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
    "file": {"type": "input_file", "file_data": "AAAA"},
    "base64": {"type": "input_text", "text": f"What is this? {ENCODED}"},
    "base64 in lines": {"type": "input_text", "text": base64.encodebytes(ENCODED.encode()).decode()},
    "digests": {"type": "input_text", "text": "\n".join(f"{number:064x}" for number in range(20))},
}


@pytest.mark.parametrize("part", PARTS)
def test_images_files_and_what_is_encoded_teach_nothing(part: str) -> None:
    estimator = TokenEstimator()
    content = [PARTS[part], {"type": "input_text", "text": "word " * 50}]
    body = {"input": [{"type": "message", "role": "user", "content": content}]}
    what = measured_request(decode_request(encode(body)), most=16_000)
    for _ in range(20):
        assert not estimator.learn("m", what, round(what.tokens() * 1.5))
    assert estimator.sample_count("m") == 0


def test_sealed_reasoning_teaches_nothing() -> None:
    body = {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x" * 400}]}
    what = measured_request(decode_request(encode(body)))
    assert not TokenEstimator().learn("m", what, what.tokens())


def test_one_digest_in_much_text_does_not_keep_it_from_teaching() -> None:
    assert TokenEstimator().learn("m", asked(PROSE[:4000] + " " + "0a" * 32), asked(PROSE[:4000]).tokens())


# ── bounds ─────────────────────────────────────────────────────────────────────────────────────────────────
hostile = st.tuples(
    st.floats(0, 10**7, allow_nan=False) | st.just(0.0),
    st.floats(0, 10**7, allow_nan=False) | st.just(0.0),
    st.integers(0, 3000),
    st.booleans(),
    st.integers(-(10**6), 10**12) | st.sampled_from([0, 1, 10**400]),
)
plausible = st.tuples(
    st.floats(1, 10**5), st.floats(0, 10**5), st.just(0), st.just(False), st.floats(0.25, 4)
)


@given(st.lists(hostile | plausible, max_size=60))
def test_no_traffic_moves_an_estimate_beyond_half_and_twice(reports: list[Any]) -> None:
    estimator = TokenEstimator()
    for ascii_, other, fixed, encoded, count in reports:
        what = Measured(Cost(ascii_, other), fixed, encoded)
        tokens = round((ascii_ + other) * count) if isinstance(count, float) else count
        estimator.learn("m", what, tokens)
        for text in TEXTS:
            plain, corrected = text_tokens(text), estimator.text(text, "m")
            assert plain // 2 <= corrected <= 2 * plain + 1
            assert (corrected >= 1) == bool(text)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.floats(0.25, 4)), max_size=40),
    st.floats(0.6, 1.8),
    st.integers(0, 30),
)
def test_truth_takes_back_what_lies_did(lies: list[tuple[int, float]], true: float, seed: int) -> None:
    estimator = TokenEstimator()
    texts = [asked(text) for text in requests(seed, ["prose", "code", "cjk"], 41)]
    for which, factor in lies:
        estimator.learn("m", texts[which], round(texts[which].tokens() * factor))
    for what in [*texts, *texts]:
        estimator.learn("m", what, round(what.tokens() * true))
    for what in texts:
        assert abs(estimator.tokens(what, "m") - what.tokens() * true) < 0.1 * what.tokens() * true


def test_one_request_moves_little() -> None:
    """One of 1,500 characters of code once made 119 tokens of 291, and none of a word."""
    estimator = TokenEstimator()
    for tokens in (1, 100, 300, 500, 10**6):
        before = estimator.text(PROSE[:1200], "m")
        estimator.learn("m", asked(CODE[:1500]), tokens)
        assert 0.87 * before <= estimator.text(PROSE[:1200], "m") <= 1.14 * before
        assert estimator.text("word", "m") == 1


def test_families_are_bounded() -> None:
    estimator = TokenEstimator(max_families=2)
    for family in ("first", "second", "third"):
        assert estimator.learn(family, *measured("some words, " * 30))
    assert [estimator.sample_count(family) for family in ("first", "second", "third")] == [0, 1, 1]
    assert len(estimator._families) == 2


@pytest.mark.untraced
def test_a_sample_of_a_long_text_stands_for_all_of_it() -> None:
    """On the average of conversations: where each kind of text lies in one of them is chance."""
    whole = sample = 0
    for seed in range(16):
        kinds = requests(seed, ["prose", "code", "cjk"])
        items = [{"type": "message", "role": "user", "content": each} for each in kinds]
        request = decode_request(encode({"input": items}))
        whole += measured_request(request).tokens()
        sample += measured_request(request, most=16_000).tokens()
    assert abs(whole - sample) < 0.1 * whole
    short = decode_request(encode({"input": "Hello"}))
    assert measured_request(short, most=16_000) == measured_request(short)


def test_content_is_cached_by_what_it_is_and_bounded() -> None:
    cache: ContentCache[int] = ContentCache(most=2)
    long = "x" * 1_000_000
    assert cache.get(long) is None
    assert cache.put(long, 1) == 1
    assert cache.get("x" * 1_000_000) == 1
    assert cache.get(long, "other tokenizer") is None
    cache.put("b", 2)
    assert cache.get(long) == 1
    cache.put("c", 3)
    assert (cache.get("b"), cache.get(long), len(cache)) == (None, 1, 2)
    assert all(not isinstance(key, str) or len(key) <= 64 for _scope, key in cache._values)
    assert cache.put("\ud800", 4) == cache.get("\ud800")


def test_it_may_be_asked_from_several_threads() -> None:
    estimator = TokenEstimator()
    words = [f"text number {number % 50}" for number in range(2 * MAX_TEXTS)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(estimator.text, words)) == list(map(text_tokens, words))
