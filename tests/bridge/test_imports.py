"""What `import openresponses_bridge`, its names and one dialect load: msgspec, parts of the standard library,
and of this package what is listed here. cryptography is loaded when something is sealed with a key."""

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from openresponses_bridge.errors import LocalError
from openresponses_bridge.seal import Sealer
from tests.support.shared import REPOSITORY

DIALECTS = {
    path.parent.name
    for path in REPOSITORY.glob("bridge/openresponses_bridge/dialects/*/dialect.py")
    if path.parent.name != "base"
}
# a dialect that is two others: Messages in the envelope of Bedrock
MADE_OF = {"bedrock_invoke": {"anthropic_messages", "bedrock_converse"}}
# msgspec looks for typing_extensions by itself
THIRD_PARTY = {"msgspec", "typing_extensions"}
FRONT = {
    "openresponses_bridge",
    "openresponses_bridge.calls",
    "openresponses_bridge.conformance",
    "openresponses_bridge.decoder",
    "openresponses_bridge.diagnostics",
    "openresponses_bridge.emitter",
    "openresponses_bridge.errors",
    "openresponses_bridge.text",
    "openresponses_bridge.protocol",
    "openresponses_bridge.random_ids",
    "openresponses_bridge.sse",
    "openresponses_bridge.state",
    "openresponses_bridge.models",
}
# what dialects share beyond that; no dialect needs all of it
SHARED = {
    "openresponses_bridge.schemas",
    "openresponses_bridge.dialects",
    "openresponses_bridge.seal",
}
IO = {
    "asyncio",
    "concurrent",
    "http",
    "logging",
    "multiprocessing",
    "select",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
}


def loaded(code: str) -> set[str]:
    """The modules that the code imports in a new interpreter, beside those that are there before it."""
    program = f"import sys; before = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def ours(modules: set[str]) -> set[str]:
    """Those of the library: the module, or the package right below its root that it is in."""
    return {
        ".".join(name.split(".")[:2]) for name in modules if name.partition(".")[0] == "openresponses_bridge"
    }


def others(modules: set[str]) -> set[str]:
    """Packages from outside, of which the standard library is none."""
    own = {"openresponses_agent", "openresponses_bridge"}
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - own


def test_import_bridge_loads_nothing_else() -> None:
    modules = loaded("import openresponses_bridge")
    assert others(modules) == set()
    assert ours(modules) == {"openresponses_bridge"}


def test_a_name_of_bridge_loads_what_it_needs() -> None:
    assert ours(loaded("from openresponses_bridge import BridgeError")) == {
        "openresponses_bridge",
        "openresponses_bridge.errors",
    }
    assert "openresponses_bridge.conformance" not in ours(
        loaded("from openresponses_bridge import ResponseStreamStateMachine")
    )


def test_the_names_of_bridge_load_what_is_listed_and_nothing_else() -> None:
    modules = loaded("from openresponses_bridge import *")
    assert "openresponses_agent" not in modules
    assert others(modules) <= THIRD_PARTY
    assert ours(modules) == FRONT
    assert not modules & IO


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_a_dialect_loads_no_other_and_nothing_from_outside(name: str) -> None:
    modules = loaded(f"import openresponses_bridge.dialects.{name}")
    assert others(modules) <= THIRD_PARTY
    assert ours(modules) <= FRONT | SHARED
    packages = {each.split(".")[2] for each in modules if each.startswith("openresponses_bridge.dialects.")}
    assert packages == {"base", name} | MADE_OF.get(name, set())
    assert not modules & IO


def test_a_backend_loads_nothing_from_outside() -> None:
    assert others(loaded("import openresponses_bridge.backend")) <= THIRD_PARTY


@pytest.mark.untraced
def test_no_module_imports_anything_else_from_outside() -> None:
    """Those too that nothing above loads, and imports within functions."""
    imports = {
        (path.relative_to(REPOSITORY).as_posix(), name.partition(".")[0])
        for path in REPOSITORY.glob("bridge/**/*.py")
        for node in statements(ast.parse(path.read_bytes()))
        for name in names_in(node)
    }
    outside = {
        (path, name)
        for path, name in imports
        if name not in {*sys.stdlib_module_names, "openresponses_agent", "openresponses_bridge", "msgspec"}
    }
    assert ("bridge/openresponses_bridge/errors.py", "__future__") in imports
    assert outside == {
        ("bridge/openresponses_bridge/seal.py", "cryptography"),
        ("bridge/openresponses_bridge/schemas/checking.py", "jsonschema_rs"),
        ("bridge/openresponses_bridge/calls/json_text.py", "json_repair"),
        ("bridge/openresponses_bridge/testing.py", "hypothesis"),
    }


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements in this one, without their expressions, which are most of the nodes."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, block, ()):
            yield each
            yield from statements(each)


def names_in(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def test_cryptography_is_loaded_by_the_first_sealer_that_has_a_key() -> None:
    plain = "from openresponses_bridge.seal import Sealer; s = Sealer(); s.open(s.seal(b'x', 'kind'))"
    assert others(loaded(plain)) <= THIRD_PARTY
    assert "cryptography" in others(loaded("from openresponses_bridge.seal import Sealer; Sealer(b'k' * 32)"))


def test_the_engine_of_schemas_is_loaded_by_the_first_schema() -> None:
    names = "from openresponses_agent.tools import *; r = ToolRegistry(); r.tool(lambda: 1) if 0 else None"
    assert others(loaded(names)) <= THIRD_PARTY
    first = "from openresponses_agent.tools import validate_tool_input as v; v('t', '{}', {})"
    assert "jsonschema_rs" in others(loaded(first))


def test_a_key_without_cryptography_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(LocalError, match=r"pip install 'openresponses-bridge\[seal\]'") as caught:
        Sealer(b"k" * 32)
    assert caught.value.code == "bridge.seal.cryptography"
    assert Sealer().open(Sealer().seal(b"x", "kind")).payload == b"x"
