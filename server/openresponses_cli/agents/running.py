"""Runs a task with a model and tools, from settings to a result."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import anyio

from openresponses_agent.loop import (
    ApprovalRequest,
    JournalError,
    LoopBegun,
    LoopEntry,
    LoopResult,
    LoopState,
    RoundMade,
    ToolCallingLoop,
    ToolCallLimitBehavior,
    decode_entries,
    encode_entry,
)
from openresponses_agent.loop.journal import LINE_END
from openresponses_agent.prompt import GlobalContext, PromptContext, PromptRenderer
from openresponses_agent.prompt.bodies import ResponsesFields
from openresponses_agent.tools.errors import CancellationToken
from openresponses_agent.tools.offering import ModelCapabilities, get_agent_tools
from openresponses_agent.tools.registry import Tool, ToolRegistry
from openresponses_agent.tools.service import ToolsService
from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_cli.agents.call_log import CallLog
from openresponses_cli.agents.driving import LoopDriver, call_with_anyio
from openresponses_cli.agents.model import ServiceModel
from openresponses_cli.agents.screen import Screen
from openresponses_cli.agents.task_context import TaskAttachments
from openresponses_server.requests.composition import compose, service_lifespan
from openresponses_server.requests.service import Service
from openresponses_server.settings import Settings, SettingsError
from openresponses_server.upstreams.listing import first_choice

# The journal: a file with a loop's entries. Each is durable before the loop continues; all are read when the
# run is resumed.

_MOST_BYTES: Final = 1 << 30
_FIRST_BYTES: Final = encode_entry(LoopBegun(""))[:15]  # the first bytes of any journal


class JournalFile:
    """A context manager that opens the file, locks it against other runs and reads its `entries`. A new file
    is readable by its user alone. Raises JournalError for a file that another run has open or that is not a
    journal, OSError if it can't be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._last_round: RoundMade | None = None
        self.entries: list[LoopEntry] = []

    def __enter__(self) -> JournalFile:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
            self._read()
        except BaseException:
            os.close(self._file)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def fileno(self) -> int:
        """Return the descriptor of the open file."""
        return self._file

    def record(self, entry: LoopEntry) -> None:
        """Append an entry; it is on the disk when this returns. Raises OSError, and then the file is
        unchanged."""
        before = os.lseek(self._file, 0, os.SEEK_END)
        rest = memoryview(encode_entry(entry, self._last_round))
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, before)
            raise
        self._set_last_round(entry)

    def _set_last_round(self, entry: LoopEntry) -> None:
        """Keep the last round, relative to which the line of the next one is encoded."""
        if isinstance(entry, RoundMade):
            self._last_round = entry

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(JournalError.INVALID, f"{self._path} is in use by another run") from error

    def _read(self) -> None:
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):  # reading a device may never end
            raise JournalError(JournalError.INVALID, f"{self._path} is not a regular file")
        if status.st_size > _MOST_BYTES:
            raise JournalError(JournalError.INVALID, f"{self._path} is larger than {_MOST_BYTES} bytes")
        with os.fdopen(os.dup(self._file), "rb") as file:
            data = file.read()
        try:
            self.entries = list(decode_entries(data))
            LoopState(self.entries)
        except JournalError as error:
            raise JournalError(JournalError.INVALID, f"{self._path}: {error.message}") from error
        for entry in self.entries:
            self._set_last_round(entry)
        if not self.entries and not data.startswith(_FIRST_BYTES) and not _FIRST_BYTES.startswith(data):
            raise JournalError(JournalError.INVALID, f"{self._path} is not a journal of a run")
        os.ftruncate(
            self._file, data.rfind(LINE_END) + 1
        )  # the rest is a part of a line: the process stopped while it was writing


SYSTEM: Final = (
    "You are a coding assistant that works in one folder through tools. Look before you change something, "
    "change as little as the task needs, and say at the end what you did and what you could not do.",
    "Paths are relative to the folder. When a tool reports an error, read it and correct the call; do not "
    "repeat a call that failed in the same way.",
)


class Task(NamedTuple):
    """A task, and the options for doing it."""

    query: str
    """The question; "" to continue the journal's last one."""
    model: str | None
    """The model; None for the default model, else the first that calls tools."""
    tools: ToolRegistry
    workspace: str
    """The path of the folder as the model sees it."""
    journal: JournalFile | None = None
    yes: bool = False
    """Allow every call without asking."""
    limit: int = 25
    """The limit of rounds."""
    limit_behavior: ToolCallLimitBehavior = ToolCallLimitBehavior.CONFIRM
    max_prompt_tokens: int | None = None
    stateful: bool = False
    """Store the response of each round, and continue it with the next request."""
    disabled: tuple[str, ...] = ()
    """Names and tags of tools that are neither offered nor run."""
    system: str | None = None
    """The system text before the part about the workspace; None for `SYSTEM`."""
    repair: bool = True
    """Repair arguments that are not JSON."""
    model_summaries: bool = True
    """Have the model summarise a conversation that exceeds its limits."""
    attachments: TaskAttachments = TaskAttachments([], [])
    global_context: GlobalContext | None = None
    """The description of the workspace; None to send only its path."""
    call_log: CallLog | None = None
    """Logs each call; None to log none."""
    hosted_tools: tuple[dict[str, Any], ...] = ()
    """The tools that the model's server runs, as a request declares them."""
    max_tool_calls: int | None = None
    """The most calls that the model's server runs for one answer."""


class TaskResult(NamedTuple):
    """The end of a task, and the repairs, losses and retries on the way."""

    result: LoopResult
    notes: list[Diagnostic]

    def as_json(self) -> dict[str, Any]:
        """Return the result's JSON, with `notes` if there are any."""
        return self.result.as_json() | ({"notes": [str(each) for each in self.notes]} if self.notes else {})


async def run_task(task: Task, settings: Settings, screen: Screen) -> TaskResult:
    """Run a task to its end. SIGINT, SIGTERM and a closed output cancel it. Raises SettingsError, also if no
    model is found, OSError if the journal can't be written, BridgeError for a tool that can't be used."""
    service = compose(settings)
    token = CancellationToken()
    screen.on_reader_gone(token.cancel)
    ended: list[TaskResult | BridgeError | SettingsError | OSError] = []
    async with service_lifespan(service), anyio.create_task_group() as group:
        group.start_soon(_cancel_by_signal, token)
        try:
            ended.append(await _run(task, service, screen, token))
        except (BridgeError, SettingsError, OSError) as error:  # the group would wrap it in an ExceptionGroup
            ended.append(error)
        group.cancel_scope.cancel()
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


async def _run(task: Task, service: Service, screen: Screen, token: CancellationToken) -> TaskResult:
    entries = [] if task.journal is None else task.journal.entries
    screen.show_resumed(entries)
    prompt = None if task.yes else screen.confirmation_prompt(token)
    listed = await service.listing.models()  # including the limits that upstreams report
    name = task.model or service.settings.default_model or first_choice(listed)
    if name is None:
        raise SettingsError("no model was found: name one with --model")
    capabilities = service.router.resolve(name).able
    able = ModelCapabilities(capabilities.tools is not False, max_tools=capabilities.max_tools)
    offered = ToolRegistry(get_agent_tools(task.tools, able, task.disabled))
    tools = ToolsService(
        offered,
        call=call_with_anyio,
        confirm=_allow if task.yes else None if prompt is None else prompt.confirm,
        repair=task.repair,
        on_progress=screen.show_progress,
    )
    if task.call_log is not None:
        task.call_log.subscribe(tools)
    limits = EnrichedModelData.of(
        name,
        "",
        context_window=capabilities.context_window,
        max_input_tokens=capabilities.max_input_tokens,
        max_output_tokens=capabilities.max_output_tokens,
    )
    max_prompt_tokens = task.max_prompt_tokens or (limits.max_input_tokens if limits.limits_known else None)
    renderer = PromptRenderer(
        service.meters.counter(""),
        model=name,
        max_prompt_tokens=max_prompt_tokens,
        supports_images=capabilities.images is not False,
    )
    loop = ToolCallingLoop(
        _context_of(task, list(offered)),
        renderer,
        state=LoopState(entries),
        record=_recorder(task.journal, screen),
        finished_cb=screen.show_delta,
        hosted_cb=screen.show_hosted,
        parallel=lambda name: (tool := offered.get(name)) is not None and tool.parallel,
        tool_call_limit=task.limit,
        limit_behavior=task.limit_behavior,
        token=token,
        settings={"model": name, "folder": task.workspace},
        stateful=task.stateful,
        model_summaries=task.model_summaries,
    )
    limited: ResponsesFields = {} if task.max_tool_calls is None else {"max_tool_calls": task.max_tool_calls}
    model = ServiceModel(service, name, stateful=task.stateful, **limited)
    approve = _approve if task.yes else screen.decline if prompt is None else prompt.approve
    result = await LoopDriver(loop, model, tools, ask_user=prompt, approve=approve).run()
    notes = [*renderer.diagnostics, *loop.diagnostics, *model.diagnostics]
    screen.show_result(result, notes)
    return TaskResult(result, notes)


def _context_of(task: Task, tools: list[Tool]) -> PromptContext:
    return PromptContext(
        system=SYSTEM if task.system is None else (task.system,),
        query=task.query,
        attachments=task.attachments.files,
        references=task.attachments.references,
        global_context=task.global_context or GlobalContext(workspace_root=task.workspace),
        tools=tools,
        hosted_tools=task.hosted_tools,
    )


def _recorder(journal: JournalFile | None, screen: Screen) -> Callable[[LoopEntry], None]:
    def record(entry: LoopEntry) -> None:
        if journal is not None:
            journal.record(entry)
        screen.show_entry(entry)

    return record


async def _allow(tool_name: str, question: str) -> bool:
    return True


async def _approve(request: ApprovalRequest) -> bool:
    return True


async def _cancel_by_signal(token: CancellationToken) -> None:
    """Cancel at the first signal. Further ones end the process, as is the default."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            break
    token.cancel()


def load_registry(name: str) -> ToolRegistry:
    """Return the registry named by `MODULE:REGISTRY`, or returned by the function of that name. Raises
    ValueError with the reason if there is none."""
    from importlib import import_module

    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"{name!r} is not MODULE:REGISTRY")
    try:
        target = getattr(import_module(module_name), attribute)
        registry = target() if callable(target) and not isinstance(target, ToolRegistry) else target
    except (Exception, SystemExit) as error:
        raise ValueError(f"{name}: {type(error).__name__}: {error}") from error
    if not isinstance(registry, ToolRegistry):
        raise ValueError(f"{name} is a {type(registry).__name__}, not a ToolRegistry")
    return registry
