"""`python -m tests.mutations`: what it changes, and which tests judge that."""

import ast

import pytest

from tests.mutations import judges_of, mutations


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("return a < b", ["return (a <= b)"]),
        ("return a and b", ["return (a or b)"]),
        ("return not a", ["return (a)"]),
        ("return a + é", ["return (a - é)"]),
        ("a.b(c)", ["pass"]),
        ("self.a = 1", ["pass"]),
        ("a = 1", []),
        ("x = 1 if a else 2", ["x = 1 if (not (a)) else 2"]),
    ],
)
def test_each_mistake_is_one_change_of_a_function(line: str, changed: list[str]) -> None:
    source = f"a = 1 < 2\ndef f():\n    {line}\n".encode()
    made = [each.applied(source).decode() for each in mutations(source)]
    assert made == [f"a = 1 < 2\ndef f():\n    {new}\n" for new in changed]
    assert all(ast.parse(each) for each in made)


def test_a_mutation_is_judged_by_the_tests_of_its_name_then_by_those_of_its_folder() -> None:
    assert judges_of("bridge/openresponses_bridge/sse.py")[0] == ["tests/bridge/test_sse.py"]
    named, folder = judges_of("server/openresponses_server/store/persistence.py")
    assert "tests/server/store/test_persistence.py" in named
    assert folder == ["tests/server/store"]
