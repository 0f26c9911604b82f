"""Law E11, field case 35: the client's tools under names an upstream accepts, and back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.calls.identity import ToolIdentity, ToolIdentityMap, ToolKind
from openresponses_bridge.errors import ToolError

LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=12)
# Names that collide when joined or sanitised, and names that are too long.
NAMES = ANY_TEXT | st.text("ab_.-/", max_size=5) | st.sampled_from(["x" * 64, "x" * 65, "x" * 80, "é" * 70])
TOOLS = st.tuples(st.sampled_from(ToolKind), NAMES, st.none() | NAMES)


def mapped(*tools: tuple[str, str | None], kind: ToolKind = ToolKind.FUNCTION) -> ToolIdentityMap:
    identities = ToolIdentityMap()
    for name, namespace in tools:
        identities.declare(kind, name, namespace)
    return identities


def test_e11_an_empty_map_knows_no_tool() -> None:
    identities = ToolIdentityMap()
    assert identities.resolve("shell") is None
    assert identities.resolve("") is None
    assert len(identities) == 0
    assert list(identities) == []
    assert "shell" not in identities


@pytest.mark.parametrize("kind", ToolKind)
def test_e11_a_legal_name_stays_and_keeps_its_kind(kind: ToolKind) -> None:
    identities = ToolIdentityMap()
    identity = identities.declare(kind, kind.value)
    assert identity == ToolIdentity(kind, kind.value, None, kind.value)
    assert identities.resolve(kind.value) is identity


def test_case_35_namespace_and_name_are_restored_apart() -> None:
    identities = mapped(("spawn", "multi_agent_v1"), ("spawn", "other"), ("view", None))
    assert [identity.upstream_name for identity in identities] == [
        "multi_agent_v1__spawn",
        "other__spawn",
        "view",
    ]
    spawn = identities.resolve("multi_agent_v1__spawn")
    assert spawn is not None
    assert (spawn.namespace, spawn.name) == ("multi_agent_v1", "spawn")


@pytest.mark.parametrize("spelling", ["git__log.all", "git.log.all", "git/log.all", "log.all"])
def test_case_35_other_spellings_of_a_namespaced_name_are_understood(spelling: str) -> None:
    identities = mapped(("log.all", "git"), ("status", "git"))
    identity = identities.resolve(spelling)
    assert identity is not None
    assert (identity.namespace, identity.name) == ("git", "log.all")


def test_e11_a_name_that_could_be_two_tools_is_none() -> None:
    identities = mapped(("log", "git"), ("log", "app"), ("b.c", "a"), ("c", "a.b"))
    assert identities.resolve("log") is None
    assert identities.resolve("a.b.c") is None
    assert identities.resolve("unheard") is None


def test_e11_the_bare_tool_goes_before_a_namespaced_one_of_the_same_name() -> None:
    identities = mapped(("log.all", "git"), ("log.all", None))
    identity = identities.resolve("log.all")
    assert identity is not None
    assert identity.namespace is None


def test_e11_names_that_join_to_the_same_stay_apart() -> None:
    identities = mapped(("b__c", "a"), ("c", "a__b"), ("a__b__c", None))
    names = [identity.upstream_name for identity in identities]
    assert names[0] == "a__b__c"
    assert all(re.fullmatch(r"a__b__c_[0-9a-f]{8}", name) for name in names[1:])
    assert len(set(names)) == 3


def test_e11_a_declared_name_that_looks_like_a_hashed_one_is_stepped_around() -> None:
    hashed = ToolIdentityMap().upstream_name("a.b")
    identities = mapped((hashed, None), ("a.b", None))
    first, second = identities
    assert first.upstream_name == hashed
    assert re.fullmatch("a_b_[0-9a-f]{8}", second.upstream_name)
    assert second.upstream_name != hashed


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("x" * 64, "x{64}"),
        ("x" * 65, "x{55}_[0-9a-f]{8}"),
        ("get weather", "get_weather_[0-9a-f]{8}"),
        ("天気", "___[0-9a-f]{8}"),
        ("", "_[0-9a-f]{8}"),
        ("\ud800", "__[0-9a-f]{8}"),
    ],
    ids=["longest", "too long", "space", "script", "empty", "surrogate"],
)
def test_e11_a_changed_name_gets_a_stable_suffix(name: str, pattern: str) -> None:
    upstream_name = ToolIdentityMap().upstream_name(name)
    assert re.fullmatch(pattern, upstream_name)
    assert mapped((name, None)).upstream_name(name) == upstream_name


def test_e11_the_suffix_does_not_change_between_releases() -> None:
    assert ToolIdentityMap().upstream_name("a b", "c") == "c__a_b_d929f354"


def test_e11_upstream_name_registers_nothing() -> None:
    identities = ToolIdentityMap()
    assert identities.upstream_name("log", "git") == "git__log"
    assert len(identities) == 0
    assert identities.resolve("git__log") is None


def test_e11_declared_twice_is_one_tool() -> None:
    identities = ToolIdentityMap()
    first = identities.declare(ToolKind.CUSTOM, "exec", "")
    assert identities.declare(ToolKind.CUSTOM, "exec") is first
    assert list(identities) == [first]
    assert identities.resolve("exec") is first


@pytest.mark.parametrize(
    ("namespace", "where"), [(None, "'exec' is"), ("box", "'exec' in namespace 'box' is")]
)
def test_e11_two_kinds_under_one_name_are_refused_and_change_nothing(
    namespace: str | None, where: str
) -> None:
    identities = ToolIdentityMap()
    first = identities.declare(ToolKind.CUSTOM, "exec", namespace)
    with pytest.raises(ToolError, match=f"{where} declared twice, as 'custom' and as 'shell'") as caught:
        identities.declare(ToolKind.SHELL, "exec", namespace)
    assert caught.value.code == "bridge.tools.name_collision"
    assert list(identities) == [first]


def test_membership_is_by_upstream_name_or_identity() -> None:
    identities = mapped(("log", "git"))
    (identity,) = identities
    assert "git__log" in identities
    assert identity in identities
    assert "log" not in identities
    assert ToolIdentity(ToolKind.SHELL, "log", "git", "git__log") not in identities
    assert None not in identities


@given(st.lists(TOOLS, max_size=12))
def test_e11_any_names_are_legal_unique_and_reversible(tools: list[tuple[ToolKind, str, str | None]]) -> None:
    identities = ToolIdentityMap()
    declared: dict[tuple[str | None, str], ToolIdentity] = {}
    for kind, name, namespace in tools:
        key = (namespace or None, name)
        if key in declared and declared[key].kind is not kind:
            with pytest.raises(ToolError):
                identities.declare(kind, name, namespace)
            continue
        expected = identities.upstream_name(name, namespace)
        declared[key] = identities.declare(kind, name, namespace)
        assert declared[key].upstream_name == expected
    assert list(identities) == list(declared.values())
    assert len({identity.upstream_name for identity in identities}) == len(identities) == len(declared)
    for (namespace, name), identity in declared.items():
        assert LEGAL.fullmatch(identity.upstream_name)
        assert (identity.namespace, identity.name) == (namespace, name)
        assert identities.resolve(identity.upstream_name) is identity
        assert identities.upstream_name(name, namespace) == identity.upstream_name


@pytest.mark.parametrize(
    "called",
    [
        "look<|channel|>commentary",
        "look <|channel|>commentary json",
        "<|start|>look",
        "default_api:look",
        "default_api.look",
        "functions.look",
        "functions.look:0",
        "to=functions.look<|message|>",
        " look",
        "look\n",
        '"look"',
        "`look`",
        "\ufefflook",
        "look()",
        "look({",
        "look[ARGS]",
        "look[CALL_ID]x1",
        "[TOOL_CALLS]look",
        "<tool_call>look",
        "look</tool_call>",
        "function<｜tool▁sep｜>look",
        "look<｜tool▁sep｜>",
        "<|channel|>commentary to=functions.look",
        "assistant to=functions.look",
        "multi_tool_use.look",
        "tool_call:look",
    ],
)
def test_e11_a_name_with_tokens_of_the_models_own_is_the_tools(called: str) -> None:
    tools = ToolIdentityMap()
    look = tools.declare(ToolKind.FUNCTION, "look")
    tools.declare(ToolKind.FUNCTION, "find")
    assert tools.resolve(called) is look
    assert not tools.is_spelled(called)


def test_e11_a_function_that_keeps_its_name_is_known_without_being_declared() -> None:
    tools = ToolIdentityMap()
    for _ in range(2):
        tools.know("look")
    for called in ("look", "look<|channel|>commentary", "functions.look"):
        identity = tools.resolve(called)
        assert identity is not None
        assert (identity.kind, identity.name, identity.upstream_name) == (ToolKind.FUNCTION, "look", "look")
    assert tools.resolve("find") is None
    assert (tools.has_tools, len(tools)) == (False, 0)


def test_e11_a_name_with_tokens_that_may_be_two_tools_is_none() -> None:
    tools = ToolIdentityMap()
    tools.declare(ToolKind.FUNCTION, "look")
    tools.declare(ToolKind.FUNCTION, "look:0")
    exact = tools.declare(ToolKind.FUNCTION, "functions.look")
    assert tools.resolve("functions.look") is exact
    assert tools.resolve("functions.look:0") is None
    assert [tools.resolve(each) for each in ("lookup", "other.look", "functions.", "", "x" * 9999)] == [
        None
    ] * 5
