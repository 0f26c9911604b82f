"""Random calls → events → the fold, the validator and the parts: the central test.

After each call, allowed or not, `Run` checks E1 (the fold equals the snapshot), E2 (numbers) and the grammar
of the stream. At the end, the parts that a decoder makes of the events have to match the calls: the text, the
thinking, and each complete tool call, once. The test keeps its own record of what to expect, without using
the machine.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.decoder import Part, PartDecoder
from openresponses_bridge.decoder.parts import (
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
)
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import items as it
from openresponses_bridge.state import (
    LIFECYCLE_METHODS,
    METHODS,
    OUTPUT_METHODS,
    TERMINAL_PHASES,
    ResponseStreamPhase,
)
from tests.support.machines import WIRES, Run, machine, plain
from tests.support.scale import FACTOR, MANY

# `*` marks refusals in parts, line ends separate parts of thinking: the decoder adds both
WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="*\n"), max_size=6)
SOME_WORDS = WORDS.filter(bool)
JSON_PIECES = st.sampled_from(
    ["{", "}", "{}", '{"a":1}', '{"a"', ":1}", '"x"', "[1,", "]", " ", "nope", "", "😀"]
)
INDEXES = st.integers(0, 3)
STOPPED = ("stop", "tool_calls", "end_turn")
REASONS = st.sampled_from([*STOPPED, "length", "content_filter", "who knows", "cancelled", None])
ENDINGS = st.one_of(
    st.tuples(st.just("finish"), REASONS),
    st.just(("finish", "stop")),
    st.just(("cancel",)),
    st.just(("fail", "down")),
)
LONG_ID = "again" * 12 + "1234"  # as long as a call_id may be
LOGPROB = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
SPOKEN = ["text", "text", "refusal", "reasoning", "reasoning_summary"]
CITATIONS = st.sampled_from(
    [ct.UrlCitation("u", 0, 1, "t"), ct.FileCitation("f", 0), {"type": "novel", "x": 1}]
)  # fmt: skip
HOSTED = {"type": "web_search_call", "status": "completed"}
IDENTITIES = ((ToolKind.CUSTOM, "patch"), (ToolKind.SHELL, "shell"), (ToolKind.FUNCTION, "my.tool"))
INVALID: list[tuple[Any, ...]] = [
    ("text", 5), ("refusal", b""), ("text", "a", [5]), ("annotation", {}), ("tool_call", "0"),
    ("tool_call", 0, 5), ("tool_call", 0, None, None, None, "code"), ("tool_call_done", 99), ("item", 5),
    ("item", {}), ("item_added", {"type": "message"}), ("item_event", "nobody", "acme:x", {}),
    ("extension_event", "plain", {}), ("extension_event", "acme:x", 5), ("usage", "many"), ("finish", 5),
    ("expect_item", 5),
]  # fmt: skip


@dataclass
class Call:
    """A tool call as it was made."""

    call_id: str | None
    name: str | None
    arguments: str = ""
    ended: bool = False

    def end(self) -> None:
        """The upstream says that the call is complete: no arguments at all mean an empty object then (law
        E6)."""
        if not self.ended and not self.arguments.strip():
            self.arguments = "{}"
        self.ended = True

    @property
    def whole(self) -> bool:
        try:
            json.loads(self.arguments)
        except ValueError:
            return False
        return True

    @property
    def truncated(self) -> bool:
        return json_state(self.arguments) is JsonState.TRUNCATED


def identities() -> ToolIdentityMap:
    declared = ToolIdentityMap()
    for kind, name in IDENTITIES:
        declared.declare(kind, name)
    return declared


class Streams(RuleBasedStateMachine):
    """One response, made by random calls."""

    schema = False

    @initialize(wire=st.sampled_from(WIRES), ending=ENDINGS)
    def begin(self, wire: str, ending: tuple[Any, ...]) -> None:
        self.ending = ending
        self.deferred: str | None = None
        self.run = Run(wire, identities=identities(), started=False, schema=self.schema)
        self.wire = wire
        self.words: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[Call] = []
        self.at: dict[int, Call] = {}
        self.usage: int | None = None
        self.announced: str | None = None
        self.made = 0
        self.sent: list[Call] = []
        self.held: list[int] = []
        self.left_incomplete = False

    # ── the state ────────────────────────────────────────────────────────────────────────────────────
    @property
    def phase(self) -> ResponseStreamPhase:
        return self.run.machine.phase

    def is_idle(self) -> bool:
        return self.phase is ResponseStreamPhase.IDLE

    def is_running(self) -> bool:
        return self.phase is ResponseStreamPhase.IN_PROGRESS

    def refused(self, *call: Any) -> str:
        before = (plain(self.run.machine.snapshot), len(self.run.events), self.phase)
        with pytest.raises(StreamStateError) as caught:
            self.run(*call)
        assert before == (plain(self.run.machine.snapshot), len(self.run.events), self.phase)
        return caught.value.code

    @rule()
    @precondition(is_idle)
    def start(self) -> None:
        self.run("start")

    @rule(call=st.sampled_from(sorted(OUTPUT_METHODS | LIFECYCLE_METHODS)))
    def call_out_of_phase(self, call: str) -> None:
        if call not in METHODS[self.phase]:
            arguments: dict[str, tuple[Any, ...]] = {
                "adopt": (machine().snapshot,), "tool_call_done": (0,), "item_event": ("x", "acme:x", {}),
                "extension_event": ("acme:x", {}), "fail": ("down",), "defer_finish": (None,),
                **dict.fromkeys(("text", "refusal", "reasoning", "reasoning_summary", "reasoning_encrypted"),
                ("a",)),
                **dict.fromkeys(("annotation", "item", "item_added", "usage"), ({},)), "expect_item": ("x",),
                **dict.fromkeys(("item_extra", "part_extra"), ({"novel": 1},)),
                "report": (machine().snapshot,),
                "stop_sequence": ("END",), "native": ("anthropic", {"a": 1}),
            }  # fmt: skip
            assert self.refused(call, *arguments.get(call, ())).startswith("bridge.stream.")

    @rule(call=st.sampled_from(INVALID))
    @precondition(is_running)
    def call_with_wrong_arguments(self, call: tuple[Any, ...]) -> None:
        if call[0] == "finish" and any(each.name is None for each in self.at.values()):
            return
        assert self.refused(*call) == "bridge.stream.invalid_argument"

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────
    @rule(call=st.sampled_from(SPOKEN), words=WORDS, logprobs=st.sampled_from([None, [], [LOGPROB]]))
    @precondition(is_running)
    def words_of_any_kind(self, call: str, words: str, logprobs: Any) -> None:
        self.run(call, words, *([logprobs] if call == "text" else []))
        self.said(call).append(words)

    @rule(call=st.sampled_from(SPOKEN), before=WORDS, after=WORDS)
    @precondition(is_running)
    def a_split_character(self, call: str, before: str, after: str) -> None:
        self.run(call, before + "\ud83d")
        self.run(call, "\ude00" + after)
        self.said(call).append(f"{before}😀{after}")

    @rule(
        call=st.sampled_from(SPOKEN),
        half=st.sampled_from(["\ud83d", "\ude00"]),
        after=st.sampled_from(["", "x"]),
    )
    @precondition(is_running)
    def half_a_character(self, call: str, half: str, after: str) -> None:
        self.run(call, half)
        self.run(call, after)
        self.run("part_done")
        self.said(call).append("\ufffd" + after)

    def said(self, call: str) -> list[str]:
        return self.words if call in ("text", "refusal") else self.thoughts

    @rule(
        call=st.one_of(
            st.tuples(st.just("reasoning_encrypted"), st.sampled_from(["", "sealed", "other"])),
            st.tuples(st.just("annotation"), CITATIONS),
            st.tuples(st.just("reasoning_summary"), st.just(""), st.integers(0, 2)),
            st.sampled_from([("part_done",), ("block_done",)]),
            st.sampled_from([("item_extra", {"novel": 1}), ("part_extra", {"novel": [2]})]),
        )
    )
    @precondition(is_running)
    def around_the_words(self, call: tuple[Any, ...]) -> None:
        self.run(*call)

    @rule()
    @precondition(lambda self: self.phase not in TERMINAL_PHASES)
    def reported(self) -> None:
        """Report what an upstream's response says about itself."""
        self.run("report", replace(machine().snapshot, service_tier="fast"))

    # ── tool calls ───────────────────────────────────────────────────────────────────────────────────
    @rule(
        index=INDEXES, name=st.sampled_from(["f", "g", "f", "g", None]), piece=JSON_PIECES,
        kind=st.sampled_from(["fresh", "fresh", "long", "none"]),
    )  # fmt: skip
    @precondition(is_running)
    def tool_call(self, index: int, name: str | None, piece: str, kind: str) -> None:
        """Add another call at the index: with a new id, with one that an earlier call elsewhere had, or with
        none."""
        self.made += 1
        busy = self.at.get(index)
        call_id = {"fresh": f"c{self.made}", "long": LONG_ID, "none": None}[kind]
        if busy is not None and (call_id == busy.call_id or (kind == "none" and not (busy.ended and name))):
            return  # this continues the existing call
        if busy is not None and busy.call_id is None and not busy.ended:
            return  # the same: the existing call takes the id
        if busy is not None and busy.name is None:
            code = self.refused("tool_call", index, call_id, name, piece)
            assert code == "bridge.stream.incomplete_tool_call"
            return
        self.run("tool_call", index, call_id, name, piece)
        self.ends_what_is_whole()
        if busy is not None:
            busy.end()
        self.at[index] = Call(call_id, name, piece)
        self.calls.append(self.at[index])

    @rule(index=INDEXES, piece=JSON_PIECES, again=st.booleans())
    @precondition(is_running)
    def arguments(self, index: int, piece: str, again: bool) -> None:
        call = self.at.get(index)
        if call is None:
            return
        again = again and not (call.ended and call.call_id is None)  # this would be another call
        self.run("tool_call", index, call.call_id if again else None, call.name if again else None, piece)
        if not call.ended:
            call.arguments += piece

    @rule(index=INDEXES)
    @precondition(is_running)
    def late_name(self, index: int) -> None:
        call = self.at.get(index)
        if call is not None and call.name is None:
            self.run("tool_call", index, name="late")
            call.name = "late"

    @rule(index=INDEXES)
    @precondition(is_running)
    def tool_call_done(self, index: int) -> None:
        call = self.at.get(index)
        if call is None:
            assert self.refused("tool_call_done", index) == "bridge.stream.invalid_argument"
        elif call.name is None:
            assert self.refused("tool_call_done", index) == "bridge.stream.incomplete_tool_call"
        else:
            self.run("tool_call_done", index)
            call.end()

    @rule(text=SOME_WORDS, at=st.integers(0, 30), free=st.booleans())
    @precondition(is_running)
    def custom_call(self, text: str, at: int, free: bool) -> None:
        arguments = text if free else json.dumps({"input": text})
        self.one_call("patch", arguments, at, json.dumps({"input": text}), "custom" if free else "function")

    @rule(at=st.integers(0, 30))
    @precondition(is_running)
    def shell_call(self, at: int) -> None:
        arguments = '{"command": ["ls", "-l"]}'
        self.one_call("shell", arguments, at, arguments if self.wire == "openresponses" else None)

    @rule()
    @precondition(is_running)
    def held_call(self) -> None:
        """Begin a shell call that is cut, unless later arguments continue it."""
        self.made += 1
        index = 100 + self.made
        self.run("tool_call", index, f"c{self.made}", "shell", '{"command":')
        self.ends_what_is_whole()
        self.at[index] = Call(f"c{self.made}", "shell", '{"command":')
        self.calls.append(self.at[index])
        self.held.append(index)

    @rule()
    @precondition(is_running)
    def held_call_goes_on(self) -> None:
        if not self.held:
            return
        index = self.held.pop()
        self.run("tool_call", index, arguments='"ls"}')
        self.at[index].arguments += '"ls"}'
        if self.wire == "openai":
            self.calls.remove(self.at[index])  # it ends as a shell call, which has no part

    @rule(at=st.integers(0, 30))
    @precondition(is_running)
    def renamed_call(self, at: int) -> None:
        upstream = next(iter(each for each in identities() if each.name == "my.tool")).upstream_name
        self.one_call(upstream, '{"a": "b"}', at, '{"a": "b"}', name="my.tool")

    def one_call(
        self,
        upstream: str,
        arguments: str,
        at: int,
        expected: str | None,
        kind: str = "function",
        name: str = "",
    ) -> None:
        """A call from beginning to end, in two pieces, at an index of its own."""
        self.made += 1
        index, call_id = 100 + self.made, f"c{self.made}"
        self.run("tool_call", index, call_id, upstream, arguments[:at], kind)
        self.run("tool_call", index, None, None, arguments[at:], kind)
        self.run("tool_call_done", index)
        self.ends_what_is_whole()
        if expected is not None:
            self.calls.append(Call(call_id, name or upstream, expected, ended=True))

    def ends_what_is_whole(self) -> None:
        """When another call or item starts, calls with complete arguments have ended."""
        for call in self.at.values():
            call.ended = call.ended or (call.name is not None and call.whole)

    # ── items ────────────────────────────────────────────────────────────────────────────────────────
    @rule(words=SOME_WORDS, phase=st.sampled_from([None, "final_answer"]))
    @precondition(is_running)
    def message_item(self, words: str, phase: Any) -> None:
        item: dict[str, Any] = {
            "type": "message",
            "id": "m",
            "content": [{"type": "output_text", "text": words}],
        }
        self.run("item", item | ({"phase": phase} if phase else {}))
        self.ends_what_is_whole()
        self.words.append(words)

    @rule(words=SOME_WORDS)
    @precondition(is_running)
    def incomplete_item(self, words: str) -> None:
        part = {"type": "output_text", "text": words}
        self.run("item", {"type": "message", "id": "m", "status": "incomplete", "content": [part]})
        self.ends_what_is_whole()
        self.words.append(words)
        self.left_incomplete = True

    @rule(words=SOME_WORDS)
    @precondition(is_running)
    def reasoning_item(self, words: str) -> None:
        self.run("item", it.ReasoningItem("r", [ct.SummaryTextContent(words)], encrypted_content="sealed"))
        self.ends_what_is_whole()
        self.thoughts.append(words)

    @rule()
    @precondition(is_running)
    def call_item(self) -> None:
        self.made += 1
        call = Call(f"c{self.made}", "whole", '{"w": 1}', ended=True)
        self.run("item", it.FunctionCall("f", f"c{self.made}", "whole", call.arguments, "completed"))
        self.ends_what_is_whole()
        self.calls.append(call)

    @rule(item=st.sampled_from([HOSTED, {"type": "acme:x"}, it.CompactionItem("k", "sealed")]))
    @precondition(is_running)
    def other_item(self, item: Any) -> None:
        self.run("item", item)
        self.ends_what_is_whole()

    @rule(item_id=st.sampled_from(["h1", "h2"]))
    @precondition(is_running)
    def announced_item(self, item_id: str) -> None:
        if self.announced is None:
            self.run("item_added", HOSTED | {"id": item_id, "status": "in_progress"})
            self.announced = item_id
        else:
            self.run("item_event", self.announced, "response.web_search_call.searching", {"query": "q"})
            self.run("item", HOSTED | {"id": self.announced})
            self.ends_what_is_whole()
            self.announced = None

    @rule(item_id=st.sampled_from(["up", "other"]), phase=st.sampled_from([None, "commentary"]))
    @precondition(is_running)
    def expect_item(self, item_id: str, phase: Any) -> None:
        self.run("expect_item", item_id, phase)

    # ── properties of the response ───────────────────────────────────────────────────────────────────
    @rule(
        call=st.one_of(
            st.tuples(st.just("usage"), st.integers(0, 9)),
            st.tuples(st.just("defer_finish"), REASONS),
            st.tuples(st.just("extension_event"), st.just("acme:note"), st.just({"deep": [{"a": None}]})),
            st.tuples(
                st.just("expect_item"),
                st.sampled_from(["up", "other"]),
                st.sampled_from([None, "commentary"]),
            ),
        )
    )
    @precondition(is_running)
    def about_the_response(self, call: tuple[Any, ...]) -> None:
        if call[0] == "usage":
            self.usage = call[1] or self.usage or 0  # a count of 0 keeps the earlier one
            call = ("usage", {"output_tokens": call[1]})
        elif call[0] == "defer_finish":
            self.deferred = call[1]
        self.run(*call)

    @rule()
    @precondition(lambda self: self.phase not in TERMINAL_PHASES)
    def adopt(self) -> None:
        self.run("adopt", machine().snapshot)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────
    @rule(ending=ENDINGS, sure=st.integers(0, 15))
    @precondition(is_running)
    def end(self, ending: tuple[Any, ...], sure: int) -> None:
        if sure == 0:
            self.ended_by(*ending)

    def ended_by(self, call: str, *arguments: Any) -> None:
        nameless = [index for index, each in self.at.items() if each.name is None]
        if call == "finish" and nameless:
            assert self.refused(call, *arguments) == "bridge.stream.incomplete_tool_call"
            for index in nameless:
                self.run("tool_call", index, name="late")
                self.at[index].name = "late"
        self.run(call, *arguments)
        reason = (arguments[0] or self.deferred or "stop") if call == "finish" else "cancelled"
        for each in self.calls:
            if reason in STOPPED:
                each.end()
            elif reason != "cancelled":
                each.ended = each.ended or bool(each.arguments.strip())
        self.sent = [each for each in self.calls if each.ended and not each.truncated]
        cut_call = any(each.ended and each.truncated for each in self.calls)
        cut = cut_call or self.announced is not None or self.left_incomplete
        if cut and reason in STOPPED:
            cut_by = "incomplete_tool_call" if cut_call else "incomplete_item"
            assert self.run.terminal["incomplete_details"] == {"reason": cut_by}
        completed = reason in STOPPED and not cut
        assert completed is (self.run.terminal["status"] == "completed")

    @invariant()
    def snapshot_is_of_the_phase(self) -> None:
        if hasattr(self, "run"):
            status = self.run.machine.snapshot.status
            assert (status == "in_progress") is self.is_running()

    def teardown(self) -> None:
        if not hasattr(self, "run") or self.is_idle():
            return
        if self.is_running():
            self.ended_by(*self.ending)
        assert self.run.validator.close() == []
        assert self.run.terminal == plain(self.run.machine.snapshot) == plain(self.run.accumulator.response)
        assert (self.run.terminal["usage"] or {}).get("output_tokens") == self.usage
        call_ids = [item["call_id"] for item in self.run.terminal["output"] if item.get("call_id")]
        assert len(call_ids) == len(set(call_ids))
        assert all(len(call_id) <= 64 for call_id in call_ids)
        self.parts_are_what_was_called(self.decoded())

    def decoded(self) -> list[Part]:
        decoder = PartDecoder(errors="none", citations="drop")
        parts = [part for event in self.run.events for part in decoder.feed(event)]
        assert decoder.close() == []
        return parts

    def parts_are_what_was_called(self, parts: list[Part]) -> None:
        text = "".join(part.value for part in parts if isinstance(part, LanguageModelTextPart))
        assert text.replace("*", "") == "".join(self.words)
        thinking = [part.value for part in parts if isinstance(part, LanguageModelThinkingPart)]
        assert "".join(str(value) for value in thinking).replace("\n", "") == "".join(self.thoughts)
        calls = [part for part in parts if isinstance(part, LanguageModelToolCallPart)]
        ids = [part.call_id for part in calls]
        assert len(ids) == len(set(ids))
        sent = [(call.name, json.loads(call.arguments)) for call in self.sent if is_object(call)]
        seen = [(part.name, part.input) for part in calls]
        for call in sent:
            assert call in seen, (call, seen)
            seen.remove(call)
        # only calls whose arguments are JSON of another kind: calls with invalid JSON are not run
        odd = [call.name for call in self.sent if call.whole and not is_object(call)]
        assert sorted(name for name, _ in seen) == sorted(str(name) for name in odd)


def is_object(call: Call) -> bool:
    return call.name is not None and call.whole and isinstance(json.loads(call.arguments), dict)


class ValidStreams(Streams):
    """A smaller number of examples, in which every event is also checked against the published schema."""

    schema = True


# shrinking a failure takes a long time
TestStreams = Streams.TestCase
TestStreams.settings = settings(max_examples=100 * FACTOR, stateful_step_count=50)
TestValidStreams = ValidStreams.TestCase
TestValidStreams.settings = settings(max_examples=10 * FACTOR, stateful_step_count=40)


class ManyStreams(Streams):
    """So many examples that rare cases occur: as many calls as in hours of a busy server."""


TestManyStreams = pytest.mark.slow(pytest.mark.timeout(4 * 3600)(ManyStreams.TestCase))
TestManyStreams.settings = settings(max_examples=4_400 * MANY, stateful_step_count=50)
