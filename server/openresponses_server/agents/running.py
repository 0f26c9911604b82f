"""A task run by a model with tools, from settings to a result."""

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

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.loop import (
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
from openresponses_bridge.loop.journal import LINE_END
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_bridge.prompt import GlobalContext, PromptContext, PromptRenderer
from openresponses_bridge.tools.cancellation import CancellationToken
from openresponses_bridge.tools.offering import ModelCapabilities, get_agent_tools
from openresponses_bridge.tools.registry import ToolRegistry
from openresponses_bridge.tools.service import ToolsService
from openresponses_server.agents.call_log import CallLog
from openresponses_server.agents.driving import LoopDriver, call_with_anyio
from openresponses_server.agents.model import ServiceModel
from openresponses_server.agents.screen import Screen
from openresponses_server.agents.surroundings import Attached
from openresponses_server.requests.composition import compose, service_lifespan
from openresponses_server.requests.service import Service
from openresponses_server.settings import Settings, SettingsError
from openresponses_server.upstreams.listing import first_choice

# A loop's entries in a file: each durable before the loop goes on, read when it is resumed.

_MOST_BYTES: Final = 1 << 30
_BEGINNING: Final = encode_entry(LoopBegun(""))[:15]  # of any journal


class JournalFile:
    """A context manager: opens the file, made for its user alone if there is none, and locks it against other
    runs; `entries` are those that it has. Raises JournalError for a file that another run has open or that is
    not a journal, OSError where it can't be used."""

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

    @property
    def identity(self) -> tuple[int, int]:
        """The device and the number of the file that is open."""
        status = os.fstat(self._file)
        return status.st_dev, status.st_ino

    def record(self, entry: LoopEntry) -> None:
        """Append an entry, on the disk when this returns. Raises OSError, and the file is then as it was."""
        before = os.lseek(self._file, 0, os.SEEK_END)
        rest = memoryview(encode_entry(entry, self._last_round))
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, before)
            raise
        self._remember(entry)

    def _remember(self, entry: LoopEntry) -> None:
        """The next round's line refers to this one's."""
        if isinstance(entry, RoundMade):
            self._last_round = entry

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(JournalError.INVALID, f"{self._path} is in use by another run") from error

    def _read(self) -> None:
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):  # a device may be read without end
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
            self._remember(entry)
        if not self.entries and not data.startswith(_BEGINNING) and not _BEGINNING.startswith(data):
            raise JournalError(JournalError.INVALID, f"{self._path} is not a journal of a run")
        os.ftruncate(self._file, data.rfind(LINE_END) + 1)  # a process stopped while it wrote the rest


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


class TaskResult(NamedTuple):
    """How a task ended, and what was repaired, lost or asked again on the way."""

    result: LoopResult
    notes: list[Diagnostic]

    def as_json(self) -> dict[str, Any]:
        """The result's JSON, with `notes` where there are some."""
        return self.result.as_json() | ({"notes": [str(each) for each in self.notes]} if self.notes else {})


async def run_task(task: Task, settings: Settings, screen: Screen) -> TaskResult:
    """To its end; SIGINT and SIGTERM cancel it, and so does a reader of what it prints that is gone. Raises
    SettingsError, also where no model is found, OSError when the journal can't be written, BridgeError for a
    tool that can't be used."""
    service = compose(settings)
    token = CancellationToken()
    screen.on_reader_gone(token.cancel)
    ended: list[TaskResult | BridgeError | SettingsError | OSError] = []
    async with service_lifespan(service), anyio.create_task_group() as group:
        group.start_soon(_cancel_by_signal, token)
        try:
            ended.append(await _run(task, service, screen, token))
        except (BridgeError, SettingsError, OSError) as error:  # out of the group it would be one of several
            ended.append(error)
        group.cancel_scope.cancel()
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


async def _run(task: Task, service: Service, screen: Screen, token: CancellationToken) -> TaskResult:
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
    return TaskResult(result, notes)


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
