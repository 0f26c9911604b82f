"""A task run by a model with tools, from settings to a result."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import anyio

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.loop import LoopEntry, LoopResult, LoopState, ToolCallingLoop, ToolCallLimitBehavior
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_bridge.prompt import GlobalContext, PromptContext, PromptRenderer
from openresponses_bridge.tools.cancellation import CancellationToken
from openresponses_bridge.tools.offering import ModelCapabilities, get_agent_tools
from openresponses_bridge.tools.registry import ToolRegistry
from openresponses_bridge.tools.service import ToolsService
from openresponses_server.agents.call_log import CallLog
from openresponses_server.agents.calling import call_with_anyio
from openresponses_server.agents.driving import LoopDriver
from openresponses_server.agents.journal_file import JournalFile
from openresponses_server.agents.model import ServiceModel
from openresponses_server.agents.screen import Screen
from openresponses_server.agents.surroundings import Attached
from openresponses_server.requests.composition import compose, running
from openresponses_server.requests.service import Service
from openresponses_server.settings import Settings, SettingsError
from openresponses_server.upstreams.listing import first_choice

SYSTEM: Final = (
    "You are a coding assistant that works in one folder through tools. Look before you change something, "
    "change as little as the task needs, and say at the end what you did and what you could not do.",
    "Paths are relative to the folder. When a tool reports an error, read it and correct the call; do not "
    "repeat a call that failed in the same way.",
)


class Task(NamedTuple):
    """What is to be done and how. Without a `model` it is the default one, else the first that calls tools.
    `query` "" goes on with the journal's question; `yes` allows every call
    without asking; `limit` is in rounds; `workspace` is how the model is shown the folder. `stateful`
    stores each round's response, and the next request goes on from it. `disabled` are names and tags of tools
    that are neither offered nor run, `repair` has arguments repaired that are not JSON, `model_summaries` has
    the model summarise what passes its room. `surroundings` say where it works, more than `workspace` does;
    `calls` logs each call."""

    query: str
    model: str | None
    tools: ToolRegistry
    workspace: str
    journal: JournalFile | None = None
    yes: bool = False
    limit: int = 25
    limit_behavior: ToolCallLimitBehavior = ToolCallLimitBehavior.CONFIRM
    max_prompt_tokens: int | None = None
    stateful: bool = False
    disabled: tuple[str, ...] = ()
    repair: bool = False
    model_summaries: bool = True
    attached: Attached = Attached([], [])
    surroundings: GlobalContext | None = None
    calls: CallLog | None = None


class Done(NamedTuple):
    """How a task ended, and what was repaired, lost or asked again on the way."""

    result: LoopResult
    notes: list[Diagnostic]

    def as_json(self) -> dict[str, Any]:
        """The result's JSON, with `notes` where there are some."""
        return self.result.as_json() | ({"notes": [str(each) for each in self.notes]} if self.notes else {})


async def run_task(task: Task, settings: Settings, screen: Screen) -> Done:
    """To its end; SIGINT and SIGTERM cancel it, and so does a reader of what it prints that is gone. Raises
    SettingsError, also where no model is found, OSError when the journal can't be written, BridgeError for a
    tool that can't be used."""
    service = compose(settings)
    token = CancellationToken()
    screen.on_reader_gone(token.cancel)
    ended: list[Done | BridgeError | SettingsError | OSError] = []
    async with running(service), anyio.create_task_group() as group:
        group.start_soon(_cancel_by_signal, token)
        try:
            ended.append(await _run(task, service, screen, token))
        except (BridgeError, SettingsError, OSError) as error:  # out of the group it would be one of several
            ended.append(error)
        group.cancel_scope.cancel()
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


async def _run(task: Task, service: Service, screen: Screen, token: CancellationToken) -> Done:
    entries = [] if task.journal is None else task.journal.entries
    screen.resumed(entries)
    asking = None if task.yes else screen.asking(token)
    listed = await service.listing.models()  # with what upstreams say of their limits
    name = task.model or service.settings.default_model or first_choice(listed)
    if name is None:
        raise SettingsError("no model was found: name one with --model")
    able = service.router.resolve(name).able
    offered = ToolRegistry(
        get_agent_tools(
            task.tools, ModelCapabilities(able.tools is not False, max_tools=able.max_tools), task.disabled
        )
    )
    tools = ToolsService(
        offered,
        call=call_with_anyio,
        confirm=_always if task.yes else None if asking is None else asking.confirm,
        repair=task.repair,
        on_progress=screen.progress,
    )
    if task.calls is not None:
        task.calls.listen(tools)
    room = EnrichedModelData.of(
        name,
        "",
        context_window=able.context_window,
        max_input_tokens=able.max_input_tokens,
        max_output_tokens=able.max_output_tokens,
    )
    most = task.max_prompt_tokens or (room.max_input_tokens if room.limits_known else None)
    renderer = PromptRenderer(
        service.meters.counter(""),
        model=name,
        max_prompt_tokens=most,
        supports_images=able.images is not False,
    )
    loop = ToolCallingLoop(
        PromptContext(
            system=SYSTEM,
            query=task.query,
            attachments=task.attached.attachments,
            references=task.attached.references,
            global_context=task.surroundings or GlobalContext(workspace_root=task.workspace),
            tools=list(offered),
        ),
        renderer,
        state=LoopState(entries),
        record=_recording(task.journal, screen),
        finished_cb=screen.finished_cb,
        parallel=lambda name: (tool := offered.get(name)) is not None and tool.parallel,
        tool_call_limit=task.limit,
        limit_behavior=task.limit_behavior,
        token=token,
        settings={"model": name, "folder": task.workspace},
        stateful=task.stateful,
        model_summaries=task.model_summaries,
    )
    model = ServiceModel(service, name, stateful=task.stateful)
    result = await LoopDriver(loop, model, tools, ask_user=asking).run()
    notes = [*renderer.diagnostics, *loop.diagnostics, *model.diagnostics]
    screen.ended(result, notes)
    return Done(result, notes)


def _recording(journal: JournalFile | None, screen: Screen) -> Callable[[LoopEntry], None]:
    def record(entry: LoopEntry) -> None:
        if journal is not None:
            journal.record(entry)
        screen.entry(entry)

    return record


async def _always(tool_name: str, question: str) -> bool:
    return True


async def _cancel_by_signal(token: CancellationToken) -> None:
    """The first signal; after that they end the process, as they do by themselves."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            break
    token.cancel()


def tools_of(name: str) -> ToolRegistry:
    """The registry that `MODULE:REGISTRY` names, or that a function of that name returns. Raises ValueError
    saying what is wrong with it."""
    from importlib import import_module

    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"{name!r} is not MODULE:REGISTRY")
    try:
        found = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name}: {error}") from error
    registry = found() if callable(found) and not isinstance(found, ToolRegistry) else found
    if not isinstance(registry, ToolRegistry):
        raise ValueError(f"{name} is a {type(registry).__name__}, not a ToolRegistry")
    return registry
