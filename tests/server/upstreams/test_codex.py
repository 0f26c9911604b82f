"""Codex's app-server as an upstream: its turns, threads, commands and models."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge import StreamValidator
from openresponses_bridge.protocol.codec import decode_event
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.settings.data_folder import data_folder
from openresponses_server.upstreams.codex import pool
from openresponses_server.upstreams.codex.pool import Folders
from tests.support.codex_upstream import MODEL, Codex, codex, text_of


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Codex]:
    with codex(tmp_path_factory.mktemp("codex")) as server:
        yield server


def started(codex: Codex) -> int:
    return len(codex.sent("thread/start"))


def test_a_turn_is_a_response_with_its_usage(served: Codex) -> None:
    response = served.ask("say Hello you")
    assert (response["status"], text_of(response)) == ("completed", "Hello you")
    assert response["usage"]["total_tokens"] == 7
    methods = [line["method"] for line in served.log if "method" in line]
    assert [each for each in methods if each != "model/list"][:3] == [  # that is asked beside
        "initialize",
        "initialized",
        "thread/start",
    ]


def test_its_stream_is_valid_and_the_same_as_the_whole_answer(served: Codex) -> None:
    reply = served.app.call("POST", "/v1/responses", {"model": MODEL, "input": "run ls", "stream": True})
    events = [decode_event(f.data) for f in SSEDecoder().feed(reply.body) if f.data != b"[DONE]"]
    validator = StreamValidator()
    assert not [violation for event in events for violation in validator.feed(event)]
    streamed = json.loads(reply.body.split(b"data: ")[-2].split(b"\n")[0])["response"]
    assert [item["type"] for item in streamed["output"]] == ["codex:command_execution", "message"]
    assert streamed["output"][0]["aggregated_output"] == "ran\n"


def test_one_process_serves_all_of_this(served: Codex) -> None:
    served.ask("say again")
    assert len(served.pids) == 1


# ── conversations ──────────────────────────────────────────────────────────────────────────────────
def test_a_conversation_by_its_previous_response_goes_on_in_its_thread(served: Codex) -> None:
    first = served.ask("run ls")
    threads = started(served)
    second = served.ask("history", previous_response_id=first["id"])
    assert (started(served), text_of(second)) == (threads, "[]")
    third = served.ask("say Third", previous_response_id=second["id"])
    assert (started(served), text_of(third)) == (threads, "Third")


def test_a_conversation_by_its_history_goes_on_in_its_thread(served: Codex) -> None:
    first = served.chat(("user", "run one"))["choices"][0]["message"]["content"]
    threads = started(served)
    again = ("user", "run one"), ("assistant", f" {first}\n"), ("user", "history")
    assert served.chat(*again)["choices"][0]["message"]["content"] == "[]"
    assert started(served) == threads


def test_another_history_gets_a_thread_of_its_own_with_all_that_came_before(served: Codex) -> None:
    served.chat(("user", "say Yes"))
    threads = started(served)
    edited = ("system", "Be brief."), ("user", "say Yes"), ("assistant", "No"), ("user", "history")
    shown = json.loads(served.chat(*edited)["choices"][0]["message"]["content"])
    assert started(served) == threads + 1
    assert [(item["role"], item["content"][0]["text"]) for item in shown][-2:] == [
        ("user", "say Yes"),
        ("assistant", "No"),
    ]
    (params,) = served.sent("thread/start")[threads:]
    assert "Be brief." in json.dumps([params, shown])


def test_a_response_that_is_continued_twice_gives_two_threads(served: Codex) -> None:
    first = served.ask("run ls")
    served.ask("say one", previous_response_id=first["id"])
    threads = started(served)
    shown = json.loads(text_of(served.ask("history", previous_response_id=first["id"])))
    assert started(served) == threads + 1
    assert [item["type"] for item in shown] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ], "with the command that Codex ran, as its model saw it"
    assert all("own" not in item for item in shown)


def test_conversations_that_begin_alike_are_kept_apart_by_their_name(served: Codex) -> None:
    for name in ("a", "b"):
        served.ask("say Hi", {"openresponses-conversation": name})
    threads = started(served)
    history: list[Any] = [
        {"role": "user", "content": "say Hi"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "say More"},
    ]
    for name in ("a", "b", "c"):
        served.ask(history, {"openresponses-conversation": name})
    assert started(served) == threads + 1, "only the third is new"


def test_keys_have_threads_of_their_own(tmp_path: Path) -> None:
    with codex(tmp_path, keys=["key-one-of-this", "key-two-of-this"]) as served:
        history: list[Any] = [{"role": "user", "content": "say Hi"}, {"role": "assistant", "content": "Hi"}]
        for key in ("key-one-of-this", "key-two-of-this"):
            headers = {"authorization": f"Bearer {key}"}
            if key == "key-one-of-this":
                served.ask("say Hi", headers)
            shown = served.ask([*history, {"role": "user", "content": "history"}], headers)
            assert (text_of(shown) == "[]") == (key == "key-one-of-this")


def test_the_thread_that_was_not_used_for_the_longest_time_is_given_up(tmp_path: Path) -> None:
    with codex(tmp_path, threads=2) as served:
        responses = [served.ask(f"say {word}") for word in ("one", "two", "three")]
        assert text_of(served.ask("history", previous_response_id=responses[2]["id"])) == "[]"
        remade = served.ask("history", previous_response_id=responses[0]["id"])
        assert "one" in text_of(remade), "its history goes along"
        while not served.sent("thread/unsubscribe"):
            served.ask("say Hi")


# ── what is asked for ──────────────────────────────────────────────────────────────────────────────
def test_what_a_request_says_reaches_the_turn(served: Codex) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    picture = "data:image/png;base64,AAAA"
    content = [{"type": "input_image", "image_url": picture}, {"type": "input_text", "text": "settings"}]
    served.ask(
        [{"role": "user", "content": content}],
        model="gpt-5.5",
        instructions="Be brief.",
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "json_schema", "name": "n", "schema": schema}},
    )
    thread, turn = served.sent("thread/start")[-1], served.sent("turn/start")[-1]
    assert (thread["model"], thread["developerInstructions"]) == ("gpt-5.5", "Be brief.")
    assert turn["input"][0] == {"type": "image", "url": picture}
    assert (turn["effort"], turn["summary"], turn["outputSchema"]) == ("low", "auto", schema)


def test_its_own_model_is_asked_for_by_no_name(served: Codex) -> None:
    served.ask("say Hi")
    assert "model" not in served.sent("thread/start")[-1]


def test_tools_of_the_client_are_a_loss_that_is_reported(served: Codex) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    response = served.ask("say Hi", tools=[tool])
    assert "tools" in response["headers"]["openresponses-losses"]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "input"),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1/x.png"}]}],
            "input[0].content",
        ),
        ([{"type": "codex:approval_response", "approval_request_id": "x", "approve": "yes"}], "input[0]"),
        ([{"type": "codex:approval_response", "approval_request_id": "x", "approve": True}], "input"),
    ],
)
def test_what_codex_can_not_be_shown_is_refused_by_its_place(served: Codex, given: Any, param: str) -> None:
    refused = served.ask(given)
    assert (refused["http"], refused["error"]["param"]) == (400, param)


def test_its_models_are_listed(served: Codex) -> None:
    reply = served.app.call("GET", "/v1/models")
    assert {"model-a", "model-b"} <= {each["id"] for each in json.loads(reply.body)["data"]}


# ── its process ────────────────────────────────────────────────────────────────────────────────────
def test_it_is_held_to_the_settings_whatever_a_client_says(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with codex(tmp_path, cwd=str(work), sandbox="workspace-write", args=["-c", "a=1"]) as served:
        served.ask("say Hi", cwd="/", sandbox="danger-full-access", approvalPolicy="never", config={"a": 1})
        served.ask([{"role": "user", "content": "say Hi", "cwd": "/"}], {"x-codex-cwd": "/"})
        (begun,) = (line for line in served.log if "argv" in line)
        assert (begun["cwd"], begun["argv"]) == (str(work), ["app-server", "-c", "a=1"])
        for thread in served.sent("thread/start"):
            assert (thread["cwd"], thread["sandbox"]) == (str(work), "workspace-write")
            assert thread["approvalPolicy"] == "never"
        assert not [turn for turn in served.sent("turn/start") if {"cwd", "sandboxPolicy"} & turn.keys()]


def test_its_environment_has_nothing_of_the_server_s_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_API_KEYS", "server-secret")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "another-secret")
    monkeypatch.setenv("CODEX_KEY", "codex-secret-of-16")
    with codex(tmp_path, secret="${CODEX_KEY}", sandbox="read-only") as served:
        names = set(json.loads(text_of(served.ask("environment"))))
        assert {"PATH", "OPENAI_API_KEY"} <= names
        assert not [name for name in names if "BRIDGE" in name or name == "ANTHROPIC_API_KEY"]
        assert served.settings.upstreams[0].codex is not None
        assert "codex-secret" not in str(served.settings), "settings can be printed"


def test_without_a_folder_it_works_in_an_empty_one_that_is_removed(tmp_path: Path) -> None:
    with codex(tmp_path) as served:
        served.ask("say Hi")
        (begun,) = (Path(line["cwd"]) for line in served.log if "argv" in line)
        (work,) = (Path(thread["cwd"]) for thread in served.sent("thread/start"))
        assert list(begun.iterdir()) == [work]
        assert list(work.iterdir()) == []
    assert not begun.exists()


def test_without_a_folder_each_key_has_one_of_its_own(tmp_path: Path) -> None:
    """What one key's commands write, an AGENTS.md say, is not read to another's."""
    with codex(tmp_path, keys=["key-one-of-this", "key-two-of-this"], sandbox="workspace-write") as served:
        for key in ("key-one-of-this", "key-two-of-this", "key-one-of-this"):
            served.ask("say Hi", {"authorization": f"Bearer {key}"})
        one, two, again = (Path(thread["cwd"]) for thread in served.sent("thread/start"))
        (process,) = (Path(line["cwd"]) for line in served.log if "argv" in line)
        assert one == again != two
        assert process not in (one, two)
        assert {one.parent, two.parent} == {process}
        assert process.parent == data_folder(), "and not where every sandbox may write"
    assert not process.exists()


def test_folders_of_keys_without_threads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folders = Folders(None, 2)
    paths = {owner: folders.of(owner) for owner in "abcd"}
    assert folders.of("b") == paths["b"]
    assert folders.surplus({"a"}) == [paths["c"], paths["d"]]
    assert folders.of("a") == paths["a"]
    assert folders.of("c") != paths["c"]
    folders.close()
    assert list(data_folder().iterdir()) == []


def test_a_process_that_has_made_enough_threads_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_MOST_THREADS", 3)
    with codex(tmp_path) as served:
        for number in range(7):
            assert text_of(served.ask(f"say {number}")) == str(number)
        assert len(served.pids) == 3
