"""Answers of a model with random weights, streamed through a server of ours over each dialect of llama.cpp's.

Nothing may fail on our side, every stream is valid on its wire, and every character that the engine sent
arrives, those that stand for bytes that are not UTF-8 too. `ENGINES_ANSWERS` is how many there are over each.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from openresponses_bridge.sse import SSEDecoder, is_done
from openresponses_bridge.wire import OPENAI, OPENRESPONSES
from tests.engines import results
from tests.engines.asking import Answer, Ask, Way, ask_over
from tests.engines.engines import ENGINES, Running, bridge, llama_server
from tests.engines.installing import RANDOM, NotInstalled
from tests.engines.words import ANSWERS

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]

_ANSWERS: Final = int(os.environ.get("ENGINES_ANSWERS", "2000"))
_ENGINE: Final = ENGINES["llama.cpp"]
_TOGETHER: Final = 4
_REPLACED: Final = "\ufffd"
_TAGS: Final = re.compile("</?think>")
_WAYS: Final = (
    Way("Responses", True, OPENRESPONSES),
    Way("Responses", True, OPENAI),
    Way("Responses", True, OPENRESPONSES),
    Way("Responses", True, OPENAI),
    Way("Chat", True),
    Way("Messages", True),
    Way("VS Code", True),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Running]:
    try:
        started = llama_server(RANDOM)
        with started as running:
            yield running
    except NotInstalled as error:
        pytest.skip(f"llama.cpp: {error}")


@pytest.mark.parametrize("dialect", _ENGINE.dialects)
def test_random_answers_arrive_whole(engine: Running, dialect: str, tmp_path: Path) -> None:
    requests = [_ask(number) for number in range(_ANSWERS)]
    with (
        bridge(_ENGINE, engine, dialect, record=str(tmp_path)) as base,
        ThreadPoolExecutor(_TOGETHER) as threads,
    ):
        answers = list(threads.map(lambda each: ask_over(each[0], base, each[1], engine.model), requests))
    sent = _sent(tmp_path)
    counts = Counter(answer.end or "not said" for answer in answers)
    counts["with replaced bytes"] = sum(_REPLACED in answer.text + answer.thinking for answer in answers)
    results.count(dialect, dict(counts))
    wrong = [
        f"{number}, {way}: {fault}"
        for number, ((way, _), answer) in enumerate(zip(requests, answers, strict=True))
        for fault in _faults(answer, sent)
    ]
    assert not wrong, f"{len(wrong)} of {len(requests)}; {counts}: {wrong[:5]}"
    assert counts["with replaced bytes"], "no answer had bytes that are not UTF-8"


def _ask(number: int) -> tuple[Way, Ask]:
    """A question of words at random, with a tool in every third."""
    chance = random.Random(number)
    words = [*ANSWERS, "weather", "Grüße", "😀", "\u0000", "{", "</tool_call>", "<think>"]
    prompt = " ".join(chance.choices(words, k=chance.randint(1, 8)))
    limit, temperature = chance.randint(16, 60), chance.choice((0.3, 1))
    ask = Ask(prompt, tools=number % 3 == 0, limit=limit, temperature=temperature)
    return _WAYS[number % len(_WAYS)], ask


def _faults(answer: Answer, sent: dict[str, str]) -> Iterator[str]:
    yield from answer.problems
    if answer.status != 200:
        yield f"{answer.status} {answer.error}"
    elif answer.request_id not in sent:
        yield f"the engine's answer was not recorded: {answer}"
    elif not answer.calls:  # a call's text is not among those that are compared
        difference = _difference(sent[answer.request_id], answer.thinking + answer.text)
        if difference:
            yield f"{difference} of {sent[answer.request_id]!r}, {answer}"


def _difference(sent: str, arrived: str) -> str:
    """The characters that did not arrive, or came without being sent; white space and tags do not count."""
    before, after = (Counter("".join(_TAGS.sub("", text).split())) for text in (sent, arrived))
    return f"lost {dict(before - after)}, added {dict(after - before)}" if before != after else ""


def _sent(folder: Path) -> dict[str, str]:
    """The texts that the engine streamed, by the id of the request."""
    ids: dict[int, str] = {}
    pieces: dict[int, list[str]] = {}
    for file in folder.glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["type"] == "exchange":
                ids[entry["exchange"]] = entry["request_id"]
            elif entry["type"] == "chunk":
                pieces.setdefault(entry["exchange"], []).append(entry["text"])
    return {ids[number]: _texts("".join(each)) for number, each in pieces.items()}


def _texts(stream: str) -> str:
    """The texts in a stream of any dialect, thinking among them."""
    decoder = SSEDecoder()
    frames = decoder.feed(stream.encode()) + decoder.close()
    return "".join(_text(json.loads(frame.data)) for frame in frames if not is_done(frame))


def _text(event: dict[str, Any]) -> str:
    kind, delta = event.get("type", ""), event.get("delta")
    if "choices" in event:
        inner = event["choices"][0]["delta"] if event["choices"] else {}
        return (inner.get("reasoning_content") or "") + (inner.get("content") or "")
    if kind == "content_block_delta":
        return str(delta.get("text") or delta.get("thinking") or "") if isinstance(delta, dict) else ""
    return delta if isinstance(delta, str) and "arguments" not in kind else ""
