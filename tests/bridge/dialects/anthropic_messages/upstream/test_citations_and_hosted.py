"""Anthropic streams → events: citations, and what Anthropic's own tools did."""

import pytest

from tests.support.anthropic import (
    closed,
    delta,
    opened,
    run,
    sealed,
    start,
    stop,
    text,
    tool,
)


# ── citations ────────────────────────────────────────────────────────────────────────────────────────
def web(url="https://a.example", **fields):
    return {"type": "web_search_result_location", "url": url, "title": "A", **fields}


def test_a_web_citation_covers_its_block():
    cited = [
        opened(1, "text", text=""),
        delta(1, "citations_delta", citation=web()),
        delta(1, "text_delta", text="cited"),
    ]
    fed = run(start(), text(0, "See: "), cited, closed(1), text(2, "."), stop())
    (part,) = fed.output[0]["content"]
    assert part["text"] == "See: cited."
    annotation = {
        "type": "url_citation",
        "url": "https://a.example",
        "title": "A",
        "start_index": 5,
        "end_index": 10,
    }
    assert part["annotations"] == [annotation]


def test_citations_of_a_later_message_start_at_its_own_beginning():
    cited = [opened(2, "text", text="xy", citations=[web()]), closed(2)]
    fed = run(start(), text(0, "long before"), tool(1, "t1", "f"), cited, stop())
    (annotation,) = fed.output[2]["content"][0]["annotations"]
    assert (annotation["start_index"], annotation["end_index"]) == (0, 2)


def test_a_citation_of_a_search_result_with_an_address_is_a_url_citation():
    citation = {"type": "search_result_location", "source": "https://b.example", "title": None}
    fed = run(start(), [opened(0, "text", text="x", citations=[citation]), closed(0)], stop())
    assert fed.output[0]["content"][0]["annotations"][0]["url"] == "https://b.example"


@pytest.mark.parametrize(
    ("citation", "where"),
    [
        ({"type": "char_location", "document_index": 0}, "annotation.anthropic:char_location"),
        (
            {"type": "search_result_location", "source": "a file"},
            "annotation.anthropic:search_result_location",
        ),
        (None, "citation.None"),
    ],
)
def test_what_a_citation_loses_is_reported(citation, where):
    fed = run(start(), [opened(0, "text", text="x", citations=[citation]), closed(0)], stop())
    assert where in fed.notes("loss")


def test_a_citation_of_no_text_is_reported_and_opens_nothing():
    fed = run(start(), [opened(0, "text", text="", citations=[web()]), closed(0)], stop())
    assert fed.output == []
    assert fed.notes("loss") == ["citation.web_search_result_location"]


# ── Anthropic's own tools ────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
def test_a_hosted_call_is_an_extension_item_with_its_block(kind):
    pieces = [delta(0, "input_json_delta", partial_json=piece) for piece in ("", '{"query":', '"x"}')]
    fed = run(
        start(),
        opened(0, kind, id="srv_1", name="code_execution", input={}),
        pieces,
        closed(0),
        text(1, "a"),
        stop(),
    )
    item = fed.output[0]
    assert (item["type"], item["id"], item["status"]) == (f"anthropic:{kind}", "srv_1", "completed")
    assert item["block"] == {"type": kind, "id": "srv_1", "name": "code_execution", "input": {"query": "x"}}


@pytest.mark.parametrize(
    "kind",
    [
        "web_search_tool_result",
        "web_fetch_tool_result",
        "mcp_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "container_upload",
        "of_next_year",
    ],
)
def test_a_hosted_result_is_kept_whole(kind):
    block = {"tool_use_id": "srv_1", "content": [{"type": "x", "deep": {"a": None}}]}
    fed = run(start(), opened(0, kind, **block), closed(0), text(1, "a"), stop())
    assert fed.output[0]["type"] == f"anthropic:{kind}"
    assert fed.output[0]["id"] == "srv_1_result"
    assert fed.output[0]["block"] == {"type": kind, **block}


def test_a_hosted_block_without_any_id_gets_one():
    fed = run(start(), opened(0, "container_upload", file_id="file_1"), closed(0), stop())
    assert fed.output[0]["id"]


def test_a_hosted_call_that_was_cut_is_incomplete():
    pieces = delta(0, "input_json_delta", partial_json='{"query": "x')
    fed = run(
        start(),
        opened(0, "server_tool_use", id="s", name="n", input={}),
        pieces,
        closed(0),
        stop("max_tokens"),
    )
    assert fed.output[0]["status"] == "incomplete"
    assert fed.response.status == "incomplete"
    assert "server_tool_use.input" in fed.notes("loss")


@pytest.mark.parametrize(
    ("given", "status", "loss"),
    [('{"query": x}', "completed", "malformed"), ('{"query": "x', "incomplete", "cut")],
)
def test_e7_nothing_is_added_after_a_hosted_call_whose_input_is_no_json(given, status, loss):
    fed = run(
        start(),
        opened(0, "server_tool_use", id="s", name="n", input={}),
        delta(0, "input_json_delta", partial_json=given),
        closed(0),
        text(1, "after"),
        stop("end_turn"),
    )
    assert [item["status"] for item in fed.output] == [status, "completed"]
    assert fed.response.status == status
    done = [event.output_index for event in fed.events if event.type == "response.output_item.done"]
    assert done == [0, 1]
    added = [event.sequence_number for event in fed.events if event.type == "response.output_item.added"]
    ended = [event.sequence_number for event in fed.events if event.type == "response.output_item.done"]
    assert (max(added) < min(ended)) is (status == "incomplete")
    assert any(loss in str(case) for case in fed.machine.diagnostics.of("loss"))


def test_case_36_a_compaction_block_is_one_compaction_item():
    fed = run(
        start(),
        opened(0, "compaction", content=None),
        delta(0, "compaction_delta", content="so far", encrypted_content="Ep"),
        closed(0),
        text(1, "a"),
        stop(),
    )
    assert [item["type"] for item in fed.output] == ["compaction", "message"]
    block = {"type": "compaction", "content": "so far", "encrypted_content": "Ep"}
    assert sealed(fed.output[0]) == ("anthropic-compaction", block)


def test_a_failed_compaction_keeps_its_null():
    fed = run(start(), opened(0, "compaction", content=None), closed(0), text(1, "a"), stop())
    assert sealed(fed.output[0])[1] == {"type": "compaction", "content": None}
