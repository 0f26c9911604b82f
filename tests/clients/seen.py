"""The versions of the clients that `make clients` runs: those that `openresponses_bridge.wire` knows by name,
and those that speak other APIs. Packages on npm are installed in these versions, since npm itself takes an
older one if the newest needs another Node.js."""

from typing import Final

from openresponses_bridge.wire import CLIENTS

_OTHERS: Final = (
    ("npm:@earendil-works/pi-coding-agent", "1.6.0", "2026-11-29"),
    ("npm:@github/copilot", "1.0.102", "2026-11-29"),
    ("npm:@qwen-code/qwen-code", "0.24.4", "2026-11-29"),
    ("npm:cline", "3.0.65", "2026-11-29"),
    ("npm:@anthropic-ai/claude-code", "2.1.332", "2026-11-28"),
    ("npm:@ai-sdk/google", "4.0.121", "2026-11-28"),
    ("npm:@anthropic-ai/sdk", "1.14.0", "2026-11-28"),
    ("npm:@google/gemini-cli", "0.61.0", "2026-11-28"),
    ("npm:@google/genai", "3.3.0", "2026-11-28"),
    ("npm:@openai/agents", "0.20.0", "2026-11-28"),
    ("pypi:google-genai", "3.6.1", "2026-11-28"),
    ("pypi:langchain-openai", "1.7.4", "2026-11-28"),
    ("pypi:pydantic-ai-slim", "2.68.0", "2026-11-28"),
    ("pypi:anthropic", "2.14.0", "2026-11-28"),
)
_ALL: Final = [*((each.package, each.seen, each.on) for each in CLIENTS if each.package), *_OTHERS]
SEEN: Final = {package: version for package, version, _ in _ALL}
"""package → the version that was checked."""
ON: Final = {package: day for package, _, day in _ALL}
"""package → the day on which it was checked."""
TYPESCRIPT: Final = ("npm:typescript", "6.0.3")
"""The compiler that reads the types of clients: the last version written in JavaScript, which has an API."""
TAPLO: Final = ("npm:@taplo/cli", "0.7.0")
"""The program that validates a configuration by its schema, as editors do."""
INSTALLED: Final = {**SEEN, **dict((TYPESCRIPT, TAPLO))}
"""package → the installed version."""


def pinned(name: str) -> str:
    """A package of npm as it is installed: in the version that was checked, if one was."""
    version = INSTALLED.get(f"npm:{name}")
    return name if version is None else f"{name}@{version}"
