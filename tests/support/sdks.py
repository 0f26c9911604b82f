"""The official SDKs, `openai` and `anthropic`, each imported at its first use, or before workers are forked:
an import takes seconds. Modules with annotations that name the SDKs have `from __future__ import
annotations`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tests.support.forked_workers import shared_by_workers

if TYPE_CHECKING:
    import anthropic as anthropic
    import openai as openai


_SDKS = ("anthropic", "openai")


def __getattr__(name: str) -> Any:
    if name not in _SDKS:
        raise AttributeError(name)
    return import_module(name)


@shared_by_workers
@cache
def import_all() -> None:
    """Import both."""
    for name in _SDKS:
        import_module(name)


async def final_output(agents: Any, agent: Any, asked: str, *, streamed: bool) -> Any:
    """The final output of this agent of openai-agents."""
    if not streamed:
        return (await agents.Runner.run(agent, asked)).final_output
    result = agents.Runner.run_streamed(agent, asked)
    async for _ in result.stream_events():
        pass
    return result.final_output
