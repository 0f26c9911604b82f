"""Tools, calls and outputs of every kind, as a model sees them that knows functions only (law E11)."""

import json

import pytest

from openresponses_bridge.calls.declarations import located, present_tools, tools_of
from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.calls.presentation import CallView, OutputView, call_view, output_view, pair
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.items import (
    FunctionCall,
    LocalShellAction,
    LocalShellCall,
    ShellAction,
    ShellCall,
    ToolSearchOutput,
)
from openresponses_bridge.protocol.unknown import UnknownItem


def request(**fields):
    return decode_request(encode(fields))


def item(**fields):
    return request(input=[fields]).input[0]


def present(*tools):
    identities, noted = ToolIdentityMap(), Diagnostics()
    declared = located(request(tools=list(tools)).tools, "tools")
    functions, others = present_tools(declared, identities, noted)
    return functions, [tool for tool, _ in others], identities, noted


# ── declarations ───────────────────────────────────────────────────────────────────────────────────
def test_a_function_is_itself():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    (view,), _, identities, _ = present(
        {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": True}
    )
    assert (view.name, view.description, view.parameters, view.strict) == ("f", "d", schema, True)
    assert identities.resolve("f").kind is ToolKind.FUNCTION


def test_a_function_without_anything_takes_an_empty_object():
    (view,), *_ = present({"type": "function", "name": "f"})
    assert (view.description, view.parameters, view.strict) == (
        "",
        {"type": "object", "properties": {}},
        None,
    )


def test_case_33_a_custom_tool_is_a_function_of_one_input_with_its_grammar_described():
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: PATCH"}
    (view,), _, identities, _ = present(
        {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": grammar}
    )
    assert view.parameters["required"] == ["input"]
    assert view.description.startswith("Patches.")
    assert "lark" in view.description
    assert "start: PATCH" in view.description
    assert identities.resolve("apply_patch").kind is ToolKind.CUSTOM


def test_case_35_namespaced_tools_have_legal_names_and_find_back():
    tools = [{"type": "function", "name": "spawn"}, {"type": "custom", "name": "say"}]
    views, _, identities, _ = present({"type": "namespace", "name": "agents", "tools": tools})
    assert [view.name for view in views] == ["agents__spawn", "agents__say"]
    identity = identities.resolve("agents__spawn")
    assert (identity.namespace, identity.name) == ("agents", "spawn")


@pytest.mark.parametrize("kind", ["shell", "local_shell", "apply_patch"])
def test_built_in_tools_are_functions_with_a_schema(kind):
    (view,), _, identities, _ = present({"type": kind})
    assert view.name == kind
    assert view.parameters["type"] == "object"
    assert view.parameters["required"]
    assert identities.resolve(kind).kind is ToolKind(kind)


def test_hosted_and_extension_tools_are_handed_back():
    functions, others, _, _ = present({"type": "web_search"}, {"type": "acme:tool"}, {"type": "tool_search"})
    assert functions == []
    assert [tool.type for tool in others] == ["web_search", "acme:tool", "tool_search"]


def test_a_hosted_tool_within_a_namespace_is_handed_back_too():
    tools = [{"type": "function", "name": "f"}, {"type": "web_search"}]
    functions, others, _, _ = present({"type": "namespace", "name": "n", "tools": tools})
    assert [view.name for view in functions] == ["n__f"]
    assert [tool.type for tool in others] == ["web_search"]


def test_a_tool_declared_twice_is_one_and_noted():
    functions, _, _, noted = present({"type": "function", "name": "f"}, {"type": "function", "name": "f"})
    assert len(functions) == 1
    assert [case.where for case in noted] == ["tools.f"]


def test_two_kinds_of_tools_of_one_name_are_refused():
    with pytest.raises(InvalidRequestError, match="declared twice") as caught:
        present({"type": "function", "name": "f"}, {"type": "custom", "name": "f"})
    assert caught.value.param == "tools[1]"


def test_items_declare_tools_or_none():
    declared = item(type="additional_tools", tools=[{"type": "function", "name": "f"}, {"type": "shell"}])
    assert [tool.type for tool in tools_of(declared)] == ["function", "shell"]
    assert tools_of(item(type="message", role="user", content="x")) == []
    assert tools_of(UnknownItem({"type": "additional_tools", "tools": [{"type": "shell"}]})) == []


def test_an_output_item_declares_what_was_found():
    output = ToolSearchOutput("tso_1", [{"type": "function", "name": "f"}, {"type": "odd"}], call_id="c1")
    assert [tool.type for tool in tools_of(output)] == ["function", "odd"]
    assert output_view(output, ToolIdentityMap()) == OutputView("c1", '{"tools":["f"]}')


# ── calls and outputs ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("fields", "name", "arguments"),
    [
        ({"type": "function_call", "name": "f", "arguments": '{"a":1}'}, "f", {"a": 1}),
        ({"type": "function_call", "name": "f", "arguments": ""}, "f", {}),
        ({"type": "function_call", "name": "f", "namespace": "n", "arguments": "{}"}, "n__f", {}),
        ({"type": "custom_tool_call", "name": "f", "input": 'say "hi"'}, "f", {"input": 'say "hi"'}),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell", {"commands": ["ls"]}),
        (
            {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
            "local_shell",
            {"command": ["ls"], "env": {}},
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            "apply_patch",
            {"type": "delete_file", "path": "a"},
        ),
        ({"type": "tool_search_call", "arguments": {"q": "x"}}, "tool_search", {"q": "x"}),
        ({"type": "tool_search_call", "arguments": '{"q":"x"}'}, "tool_search", {"q": "x"}),
    ],
)
def test_e11_calls_of_every_kind_are_function_calls(fields, name, arguments):
    view = call_view(item(call_id="c1", **fields), ToolIdentityMap())
    assert (view.call_id, view.name, json.loads(view.arguments), view.cut) == ("c1", name, arguments, False)


def test_output_items_are_calls_too():
    identities = ToolIdentityMap()
    shell = ShellCall("sh_1", "c1", ShellAction(["ls"]), "completed")
    local = LocalShellCall("ls_1", "c2", LocalShellAction(["ls"], {}), "completed")
    cut = FunctionCall("fc_1", "c3", "f", '{"a"', "incomplete")
    assert json.loads(call_view(shell, identities).arguments) == {"commands": ["ls"]}
    assert json.loads(call_view(local, identities).arguments) == {"command": ["ls"], "env": {}}
    assert call_view(cut, identities) == CallView("c3", "f", '{"a"', cut=True, item_id="fc_1")


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "message", "role": "user", "content": "x"},
        {"type": "tool_search_call", "arguments": {}, "execution": "server"},
        {"type": "web_search_call", "id": "ws_1"},
    ],
)
def test_what_a_client_does_not_answer_is_no_call(fields):
    assert call_view(item(**fields), ToolIdentityMap()) is None


@pytest.mark.parametrize(
    ("fields", "output", "failed"),
    [
        ({"type": "function_call_output", "output": "done"}, "done", False),
        ({"type": "function_call_output", "output": "no", "status": "incomplete"}, "no", True),
        ({"type": "custom_tool_call_output", "output": "done"}, "done", False),
        ({"type": "local_shell_call_output", "output": "out"}, "out", False),
        ({"type": "apply_patch_call_output", "status": "failed", "output": "no"}, "no", True),
        ({"type": "apply_patch_call_output", "status": "completed"}, "", False),
        ({"type": "shell_call_output", "output": [{"stdout": "o"}]}, '[{"stdout":"o"}]', False),
        ({"type": "shell_call_output", "output": "o"}, "o", False),
        (
            {"type": "tool_search_output", "tools": [{"type": "function", "name": "f"}, {"type": "odd"}]},
            '{"tools":["f"]}',
            False,
        ),
    ],
)
def test_outputs_of_every_kind(fields, output, failed):
    assert output_view(item(call_id="c1", **fields), ToolIdentityMap()) == OutputView("c1", output, failed)


def test_case_40_an_output_may_name_its_call_by_its_own_id():
    output = item(type="local_shell_call_output", id="c1", output="x")
    assert output_view(output, ToolIdentityMap()) == OutputView("c1", "x")


@pytest.mark.parametrize(
    "fields", [{"type": "tool_search_output", "tools": []}, {"type": "reasoning", "summary": []}]
)
def test_what_answers_nobody_is_no_output(fields):
    assert output_view(item(**fields), ToolIdentityMap()) is None


def test_a_call_that_came_under_its_upstream_name_goes_back_under_it():
    identities = ToolIdentityMap()
    upstream = identities.declare(ToolKind.FUNCTION, "spawn", "agents").upstream_name
    call_item = item(type="function_call", call_id="c1", name=upstream, arguments="{}")
    assert call_view(call_item, identities).name == upstream
    plain = identities.declare(ToolKind.FUNCTION, upstream).upstream_name
    assert plain != upstream
    assert call_view(call_item, identities).name == plain  # the client has a tool of that very name


# ── pairing ────────────────────────────────────────────────────────────────────────────────────────
def call(call_id, cut=False):
    return CallView(call_id, "f", "{}", cut)


def place(index):
    return f"input[{index}]"


def test_calls_find_their_outputs_in_any_order():
    views = [call("a"), call("b"), None, OutputView("b", ""), OutputView("a", "")]
    assert pair(views, place) == {0: 4, 1: 3}


def test_an_id_may_be_used_again_in_a_later_turn():
    views = [call("a"), OutputView("a", ""), call("a"), OutputView("a", "")]
    assert pair(views, place) == {0: 1, 2: 3}


def test_case_40_an_output_may_name_its_call_by_the_items_id():
    one, two = call("a")._replace(item_id="fc_1"), call("b")._replace(item_id="fc_2")
    assert pair([one, two, OutputView("fc_2", ""), OutputView("a", "")], place) == {0: 3, 1: 2}
    with pytest.raises(InvalidRequestError, match="'b'"):
        pair([two, OutputView("fc_2", ""), OutputView("b", "")], place)  # answered already


@pytest.mark.parametrize(
    ("views", "param"),
    [
        ([call("a")], "input[0]"),
        ([None, OutputView("a", "")], "input[1]"),
        ([OutputView("a", ""), call("a")], "input[0]"),
        ([call("a"), OutputView("a", ""), OutputView("a", "")], "input[2]"),
        ([call("b"), OutputView("b", ""), call("a"), call("a"), OutputView("a", "")], "input[3]"),
    ],
)
def test_case_45_what_has_no_counterpart_is_refused_with_its_place(views, param):
    with pytest.raises(InvalidRequestError) as caught:
        pair(views, place)
    assert (caught.value.code, caught.value.param) == ("unpaired_tool_call", param)
    assert caught.value.http_status == 400


def test_a_call_that_was_cut_may_stay_alone():
    assert pair([call("a", cut=True)], place) == {0: None}
    assert pair([call("a", cut=True), OutputView("a", "")], place) == {0: 1}
