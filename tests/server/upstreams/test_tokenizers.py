"""Models' own tokenizers: used where their data is, never fetched, linear in the text."""

import base64
import hashlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiktoken.load
import tokenizers
from structlog.testing import capture_logs
from tokenizers import models, pre_tokenizers, trainers

from openresponses_bridge.models.tokens import TokenCounter, TokenEstimator
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_server.settings import load_settings
from openresponses_server.upstreams import tokenizers as exact
from openresponses_server.upstreams.tokenizers import ExactCounter
from tests.support.serving import call, serving

TEXT = "the cat and the dog and the cat"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer for which each of these words is one token, and anything else one a letter."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([TEXT] * 50, trainer)
    tokenizer.enable_truncation(3)
    path = tmp_path_factory.mktemp("tokenizers") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Who looks for a way out; nobody finds one."""
    tried: list[Any] = []

    def refuse(*arguments: Any, **_options: Any) -> Any:
        tried.append(arguments)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return tried


def test_a_models_own_tokenizer_counts_and_others_are_estimated(file: Path) -> None:
    estimator = TokenEstimator()
    counter: TokenCounter = ExactCounter({"mine*": str(file)}, estimator)
    assert counter.text(TEXT, "mine-7b") == len(TEXT.split())
    assert counter.text(TEXT, "vendor/mine-7b:latest") == len(TEXT.split())
    assert counter.text(TEXT, "other") == estimator.text(TEXT)
    assert counter.text("", "mine") == 0
    assert counter.text("half \ud800 a pair", "mine") > 0
    request = decode_request(
        encode({"instructions": "the dog", "input": [{"type": "message", "role": "user", "content": TEXT}]})
    )
    (item,) = request.input  # type: ignore[misc]
    assert counter.item(item, "mine") == 8 + 4  # type: ignore[arg-type]
    assert counter.request(request, [item], "mine") == 2 * (8 + 4) + 2 + 4  # type: ignore[list-item]
    assert counter.request(request, model="other") == estimator.request(request)
    assert counter.item(item, "other") == estimator.item(item)  # type: ignore[arg-type]


def test_s10_a_long_text_without_spaces_costs_in_proportion(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a tokenizer's own cost grows with a text, what it is given at once is bounded."""
    load, lengths = exact._tokenizer, []

    def recorded(path: Path) -> Callable[[str], int]:
        encode = load(path)

        def encode_recorded(text: str) -> int:
            lengths.append(len(text))
            return encode(text)

        return encode_recorded

    monkeypatch.setattr(exact, "_tokenizer", recorded)
    counter = ExactCounter({"*": str(file)}, TokenEstimator())
    for size in (40_000, 400_000):
        lengths.clear()
        assert counter.text("x" * size, "m") >= size // 4
        assert sum(lengths) == size
        assert max(lengths) <= 4_000


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("tiktoken:o200k_base", "nothing is fetched"),
        ("tiktoken:of-nobody", "Unknown encoding"),
        ("/nowhere/tokenizer.json", "No such file"),
    ],
)
def test_data_that_is_not_on_the_machine_is_not_fetched(
    source: str, reason: str, no_network: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    way_out = tiktoken.load.read_file
    counter = ExactCounter({"m": source}, TokenEstimator())
    with capture_logs() as logs:
        assert [counter.text(TEXT, "m") for _ in range(3)] == [TokenEstimator().text(TEXT)] * 3
    (line,) = logs
    assert (line["event"], line["tokenizer"], line["instead"]) == (
        "tokenizer.not_used",
        source,
        "an estimate",
    )
    assert reason in line["reason"]
    assert no_network == []
    assert tiktoken.load.read_file is way_out


def test_data_in_the_cache_of_tiktoken_is_used(
    no_network: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = b"\n".join(base64.b64encode(bytes([byte])) + b" %d" % byte for byte in range(256))
    address = "https://data.example/bytes.tiktoken"
    (tmp_path / hashlib.sha1(address.encode()).hexdigest()).write_bytes(ranks)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    def constructor() -> dict[str, Any]:
        table = tiktoken.load.load_tiktoken_bpe(address)
        return {"name": "bytes", "pat_str": r"\S+|\s+", "mergeable_ranks": table, "special_tokens": {}}

    import tiktoken.registry

    tiktoken.registry.list_encoding_names()
    assert tiktoken.registry.ENCODING_CONSTRUCTORS is not None
    monkeypatch.setitem(tiktoken.registry.ENCODING_CONSTRUCTORS, "bytes", constructor)
    counter = ExactCounter({"m": "tiktoken:bytes"}, TokenEstimator())
    assert counter.text("abc <|endoftext|>", "m") == 17
    assert no_network == []


def test_the_endpoints_ask_it(file: Path) -> None:
    with serving(load_settings(tokenizers={"demo": str(file)})) as base:
        body = {"model": "demo", "input": TEXT}
        assert call(base, "POST", "/v1/responses/input_tokens", body).json["input_tokens"] == 8 + 4
        talk = {"model": "demo", "messages": [{"role": "user", "content": TEXT}]}
        assert call(base, "POST", "/v1/messages/count_tokens", talk).json["input_tokens"] == 8 + 4
