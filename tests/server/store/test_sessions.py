"""Stored responses: retrieve, delete, and `previous_response_id`."""

from openresponses_server.settings import Settings
from tests.support.serving import call, respond, serving, stream
from tests.support.upstream import CUT, Script, ScriptedUpstream, chunk, text


def contents(upstream: ScriptedUpstream, model: str) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in upstream.last(model).body["messages"]]


def test_streamed_and_whole_responses_are_retrieved_as_they_ended(demo: str) -> None:
    streamed = stream(demo, model="demo").final
    assert call(demo, "GET", f"/v1/responses/{streamed['id']}").json == streamed
    whole = respond(demo, model="demo").json
    assert call(demo, "GET", f"/v1/responses/{whole['id']}").json == whole


def test_deleted_is_gone(demo: str) -> None:
    response_id = respond(demo, model="demo").json["id"]
    sent = call(demo, "DELETE", f"/v1/responses/{response_id}").json
    assert sent == {"id": response_id, "object": "response", "deleted": True}
    assert call(demo, "GET", f"/v1/responses/{response_id}").status == 404
    again = respond(demo, model="demo", previous_response_id=response_id)
    assert (again.status, again.error["code"]) == (400, "previous_response_not_found")


def test_store_false_is_not_stored(demo: str) -> None:
    response_id = respond(demo, model="demo", store=False).json["id"]
    assert call(demo, "GET", f"/v1/responses/{response_id}").status == 404


def test_chain_is_input_then_output_then_new_input(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chain"] = Script(text("Answer"))
    first = respond(bridged, model="chain", input="One", instructions="Old rules").json
    second = respond(bridged, model="chain", input="Two", previous_response_id=first["id"]).json
    third = stream(
        bridged, model="chain", input="Three", previous_response_id=second["id"], instructions="Rules"
    )
    assert third.final["previous_response_id"] == second["id"]
    assert contents(upstream, "chain") == [
        ("system", "Rules"),
        ("user", "One"),
        ("assistant", "Answer"),
        ("user", "Two"),
        ("assistant", "Answer"),
        ("user", "Three"),
    ]


def test_case_37_instructions_are_not_carried_over(bridged: str, upstream: ScriptedUpstream) -> None:
    first = respond(bridged, model="rules", input="One", instructions="Old rules").json
    respond(bridged, model="rules", input="Two", previous_response_id=first["id"])
    assert "Old rules" not in str(contents(upstream, "rules"))


def test_case_38_a_conversation_may_branch(bridged: str, upstream: ScriptedUpstream) -> None:
    root = respond(bridged, model="branch", input="Root").json["id"]
    for branch in ("Left", "Right"):
        respond(bridged, model="branch", input=branch, previous_response_id=root)
        assert [text for role, text in contents(upstream, "branch") if role == "user"] == ["Root", branch]


def test_case_40_an_output_alone_keeps_its_call(demo: str) -> None:
    tool = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}
    first = respond(demo, model="demo", input="What time is it?", tools=[tool]).json
    (call_,) = first["output"]
    result = {"type": "function_call_output", "call_id": call_["call_id"], "output": "noon"}
    second = respond(demo, model="demo", input=[result], previous_response_id=first["id"], tools=[tool]).json
    assert second["output"][0]["content"][0]["text"] == "The tool answered: noon"


def test_failed_response_is_stored_with_what_there_is(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["fails"] = Script([chunk(content="Half"), CUT])
    failed = stream(bridged, model="fails").final
    assert call(bridged, "GET", f"/v1/responses/{failed['id']}").json == failed


def test_store_forgets_the_oldest() -> None:
    with serving(Settings(stored_responses=2)) as base:
        ids = [respond(base, model="demo").json["id"] for _ in range(3)]
        assert [call(base, "GET", f"/v1/responses/{each}").status for each in ids] == [404, 200, 200]


def test_deleted_in_the_middle_is_unseen_and_later_turns_go_on(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["kept"] = Script(text("Answer"))
    first = respond(bridged, model="kept", input="One").json
    second = respond(bridged, model="kept", input="Two", previous_response_id=first["id"]).json
    for path in ("", "/input_items", "?stream=true"):
        assert call(bridged, "GET", f"/v1/responses/{first['id']}{path}").status == 200
    assert call(bridged, "DELETE", f"/v1/responses/{first['id']}").status == 200
    for path in ("", "/input_items", "?stream=true"):
        assert call(bridged, "GET", f"/v1/responses/{first['id']}{path}").status == 404
    assert call(bridged, "DELETE", f"/v1/responses/{first['id']}").status == 404
    third = respond(bridged, model="kept", input="Three", previous_response_id=second["id"])
    assert third.status == 200
    assert [words for _, words in contents(upstream, "kept")] == ["One", "Answer", "Two", "Answer", "Three"]
    branch = respond(bridged, model="kept", input="Four", previous_response_id=first["id"])
    assert branch.error["code"] == "previous_response_not_found"
