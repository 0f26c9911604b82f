"""`TokenEstimator`: near a tokenizer that it does not know after some requests, bounded, not led astray."""

import random
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from bridge.protocol.codec import decode_request, encode
from bridge.token_counter import MAX_TEXTS, ContentCache, TokenCounter, TokenEstimator
from bridge.token_estimate import (
    PRIOR,
    WEIGHTS,
    Measured,
    measured_items,
    measured_request,
    request_tokens,
    text_tokens,
)

HERE = Path(__file__).resolve().parents[2]
CJK = (
    "今天的会议改到下午三点，请把文件提前发给大家。我们会先讨论上个月的结果，然后决定下一步做什么。",
    "駅前の新しい図書館は、来週の月曜日から朝九時に開きます。自転車は裏の駐輪場に止めてください。",
    "우리 가족은 주말마다 산에 올라가서 점심을 먹고, 저녁에는 집에서 같이 영화를 봅니다.",
)
# a vocabulary of its own kind: pieces of three letters, each sign and line, ideographs at twice the price
PIECE = re.compile(r"[A-Za-z]{1,3}|\d|\n|[^\sA-Za-z\d]")


def counted(text: str) -> int:
    """As the made-up tokenizer has it."""
    return sum(1 + (ord(piece[0]) > 0x3000) for piece in PIECE.findall(text))


def texts(seed: int) -> list[str]:
    """Pieces of prose, code and scripts without spaces, in a random order and of random lengths."""
    chance = random.Random(seed)
    prose = (HERE / "docs/decisions.md").read_text()
    code = (HERE / "bridge/emitter/machine.py").read_text()

    def some(of: str) -> str:
        start = chance.randrange(len(of) - 4000)
        return of[start : start + chance.randrange(200, 4000)]

    kinds = (lambda: some(prose), lambda: some(code), lambda: chance.choice(CJK) * chance.randrange(2, 30))
    return ["\n".join(chance.choice(kinds)() for _ in range(chance.randrange(1, 4))) for _ in range(60)]


def measured(text: str) -> tuple[Measured, int]:
    """A request of this text, and what an upstream says of it: seven tokens for the request itself."""
    return measured_request(decode_request(encode({"input": text}))), counted(text) + 7


@pytest.mark.parametrize("seed", range(5))
def test_error_is_below_a_tenth_after_twenty_requests_of_text_code_and_cjk(seed: int) -> None:
    estimator = TokenEstimator()
    requests = iter(map(measured, texts(seed)))
    before = []
    for what, tokens in islice(requests, 20):
        before.append(abs(what.tokens() - tokens) / tokens)
        assert estimator.learn("made-up", what, tokens)
    after = [abs(what.tokens(estimator.weights("made-up")) - tokens) / tokens for what, tokens in requests]
    assert sum(before) / len(before) > 0.2  # else there was nothing to learn
    assert sum(after) / len(after) < 0.1


def test_it_begins_with_the_estimate_and_is_a_counter() -> None:
    counter: TokenCounter = TokenEstimator()
    request = decode_request(encode({"input": "Hello, world!", "instructions": "Be brief."}))
    assert counter.text("Hello, world!") == text_tokens("Hello, world!")
    assert counter.request(request, model="m") == request_tokens(request)
    item = decode_request(encode({"input": [{"type": "message", "role": "user", "content": "Hi"}]})).input[0]
    assert counter.item(item) == measured_items([item]).tokens()


def test_what_one_family_learns_is_its_own_and_its_versions_share_it() -> None:
    estimator = TokenEstimator()
    for text in texts(1)[:20]:
        estimator.learn("claude-sonnet-4-5-20250929", *measured(text))
    assert estimator.learned("anthropic/claude-sonnet-4-6") == 20
    assert estimator.learned("gpt-5") == 0
    assert estimator.text(CJK[0], "claude-sonnet-4-6") > estimator.text(CJK[0], "gpt-5") * 1.5


@pytest.mark.parametrize("tokens", [0, -5, 1, 10**9])
def test_a_count_that_can_not_be_of_this_text_is_not_believed(tokens: int) -> None:
    estimator = TokenEstimator()
    assert not estimator.learn("m", measured("word " * 400)[0], tokens)
    assert estimator.weights("m") == PRIOR


def test_images_teach_nothing() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    request = decode_request(encode({"input": [{"type": "message", "role": "user", "content": [image]}]}))
    assert not TokenEstimator().learn("m", measured_request(request), 900)


def test_lies_move_the_weights_within_bounds_and_truth_moves_them_back() -> None:
    estimator = TokenEstimator()
    what, tokens = measured(texts(2)[0])
    for _ in range(500):
        expected = what.tokens(estimator.weights("m"))
        estimator.learn("m", what, expected * 3)
    assert what.tokens(estimator.weights("m")) < 80 * what.tokens()
    for _ in range(200):
        weights = estimator.weights("m")
        estimator.learn("m", what, max(tokens, what.tokens(weights) // 3))
    assert abs(what.tokens(estimator.weights("m")) - tokens) < 0.25 * tokens
    assert len(estimator.weights("m")) == len(WEIGHTS)
    assert all(weight >= 0 for weight in estimator.weights("m"))


def test_families_are_bounded() -> None:
    estimator = TokenEstimator(max_families=2)
    for family in ("first", "second", "third"):
        assert estimator.learn(family, *measured("some words, " * 30))
    assert [estimator.learned(family) for family in ("first", "second", "third")] == [0, 1, 1]


def test_a_sample_of_a_long_text_stands_for_all_of_it() -> None:
    request = decode_request(
        encode({"input": [{"type": "message", "role": "user", "content": each} for each in texts(3)]})
    )
    whole, sample = measured_request(request), measured_request(request, most=16_000)
    assert abs(whole.tokens() - sample.tokens()) < 0.15 * whole.tokens()
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
