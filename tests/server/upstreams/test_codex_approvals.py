"""What Codex asks leave for: refused, accepted, or asked of the client, who answers with its next request."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.codex_upstream import MODEL, Codex, codex, text_of
from tests.support.documents import blocks_of


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Codex]:
    with codex(tmp_path_factory.mktemp("codex"), approvals="ask") as server:
        yield server


def questions(response: Any) -> list[dict[str, Any]]:
    return [item for item in response["output"] if item["type"] == "codex:approval_request"]


def given(question: dict[str, Any], approve: bool, kind: str = "codex:approval_response") -> dict[str, Any]:
    return {"type": kind, "approval_request_id": question["id"], "approve": approve}


@pytest.mark.parametrize(("approvals", "decided"), [("never", "decline"), ("auto", "accept")])
def test_the_settings_answer(tmp_path: Path, approvals: str, decided: str) -> None:
    with codex(tmp_path, approvals=approvals) as served:
        response = served.ask("ask 2")
        assert (response["status"], text_of(response)) == ("completed", f"Decided: {decided} {decided}")
        assert not questions(response)
        odd = text_of(served.ask("oddly"))
        assert odd == f"-32601 {decided}", "an unknown request is refused, one of another thread answered"


@pytest.mark.parametrize(
    ("approve", "kind", "decided"),
    [
        (True, "codex:approval_response", "accept"),
        (False, "codex:approval_response", "decline"),
        (True, "mcp_approval_response", "accept"),
    ],
)
def test_the_client_answers_with_its_next_request(
    asking: Codex, approve: bool, kind: str, decided: str
) -> None:
    first = asking.ask("ask")
    (question,) = questions(first)
    assert (first["status"], question["kind"], question["command"]) == (
        "completed",
        "command_execution",
        "rm -r x",
    )
    threads = len(asking.sent("thread/start"))
    second = asking.ask([given(question, approve, kind)], previous_response_id=first["id"])
    assert text_of(second) == f"Decided: {decided}"
    assert second["output"][0]["outcome"] == ("completed" if approve else "declined")
    third = asking.ask("history", previous_response_id=second["id"])
    assert (text_of(third), len(asking.sent("thread/start"))) == ("[]", threads), "it is the same thread"


def test_the_answer_of_the_page_is_taken(asking: Codex) -> None:
    (page,) = (json.loads(block.code) for block in blocks_of("docs/codex.md") if block.language == "json")
    first = asking.ask("ask")
    (question,) = questions(first)
    page["previous_response_id"] = first["id"]
    page["input"][0]["approval_request_id"] = question["id"]
    answered = asking.app.call("POST", "/v1/responses", page)
    assert text_of(json.loads(answered.body)) == "Decided: accept"


def test_a_stream_shows_the_question_as_an_event_before_its_end(asking: Codex) -> None:
    reply = asking.app.call("POST", "/v1/responses", {"model": MODEL, "input": "ask", "stream": True})
    events = [json.loads(line[6:]) for line in reply.body.split(b"\n") if line.startswith(b"data: {")]
    (event,) = (event for event in events if event["type"] == "codex:approval_request")
    assert event["request_id"] == questions(events[-1]["response"])[0]["id"]
    assert events[-1]["type"] == "response.completed"


def test_several_questions_at_once_are_answered_together_or_one_by_one(asking: Codex) -> None:
    first = asking.ask("ask 2")
    one, two = questions(first)
    second = asking.ask([given(one, True)], previous_response_id=first["id"])
    assert [each["id"] for each in questions(second)] == [two["id"]]
    third = asking.ask([given(two, False)], previous_response_id=second["id"])
    assert text_of(third) == "Decided: accept decline"
    both = asking.ask("ask 2")
    answers = [given(each, True) for each in questions(both)]
    assert text_of(asking.ask(answers, previous_response_id=both["id"])) == "Decided: accept accept"


@pytest.mark.parametrize("guess", [True, False])
def test_only_what_was_asked_can_be_answered_and_only_once(asking: Codex, guess: bool) -> None:
    first = asking.ask("ask")
    (question,) = questions(first)
    if not guess:
        asking.ask([given(question, False)], previous_response_id=first["id"])
    answered = [given({"id": "apr_guessed"} if guess else question, True)]
    refused = asking.ask(answered, previous_response_id=first["id"])
    assert (refused["http"], refused["error"]["code"]) == (400, "invalid_value")


def test_a_message_beside_the_answer_is_refused(asking: Codex) -> None:
    first = asking.ask("ask")
    both = [given(questions(first)[0], True), {"role": "user", "content": "And more."}]
    assert asking.ask(both, previous_response_id=first["id"])["http"] == 400


def test_another_key_can_not_answer(tmp_path: Path) -> None:
    with codex(tmp_path, approvals="ask", keys=["key-one-of-this", "key-two-of-this"]) as served:
        mine, other = ({"authorization": f"Bearer key-{name}-of-this"} for name in ("one", "two"))
        first = served.ask("ask", mine)
        (question,) = questions(first)
        assert served.ask([given(question, True)], other)["http"] == 400
        assert text_of(served.ask([given(question, False)], mine)) == "Decided: decline"


def test_a_question_that_nobody_answers_ends_the_turn(tmp_path: Path) -> None:
    with codex(tmp_path, approvals="ask", approval_seconds=0.05) as served:
        first = served.ask("ask")
        served.ask("say Hi")
        while not served.sent("turn/interrupt"):
            served.ask("say Hi")
        (question,) = questions(first)
        assert served.ask([given(question, True)], previous_response_id=first["id"])["http"] == 400


def test_questions_that_wait_are_bounded(tmp_path: Path) -> None:
    with codex(tmp_path, approvals="ask", threads=2) as served:
        first, *_ = [served.ask("ask") for _ in range(3)]
        while not served.sent("turn/interrupt"):
            served.ask("say Hi")
        assert served.ask([given(questions(first)[0], True)])["http"] == 400
