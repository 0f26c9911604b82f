"""run_in_terminal: runs a command in the folder, with limits, after the user has allowed it.

A command starts in the folder but is not confined to it: it has all rights of the user, who is therefore
asked about each one. It runs in a process group of its own, which is killed when the command ends, takes too
long, writes too much or is cancelled. A process that leaves the group (`setsid`) is not killed.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any, Final

import anyio
from anyio.abc import Process

from openresponses_agent.tools.errors import ToolInvocationError
from openresponses_agent.tools.registry import Tool
from openresponses_agent.tools.results import LanguageModelToolResult, ToolResultTextPart
from openresponses_bridge.text import counted, printable
from openresponses_cli.agents.tools.folder import Folder
from openresponses_server.processes import kill_group

MOST_SECONDS: Final = 600
_SECONDS: Final = 60
_SHORT: Final = 400  # characters of a command that can't fill the screen
_SHOWN: Final = 20_000  # bytes at the beginning, and as many at the end
_MOST_OUTPUT: Final = 20_000_000
_FILE_BLOCKS: Final = 2_097_152  # of 512 bytes: the largest file that a command may write
_DRAIN: Final = 0.2  # seconds to read what children write after the command has ended
# variables that commands need; none has keys or tokens
_ENVIRONMENT: Final = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")
_LIMITED: Final = 'ulimit -c 0; ulimit -t "$1"; ulimit -f "$2"; exec /bin/sh -c "$3"'
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "maxLength": 10_000, "description": "For /bin/sh"},
        "explanation": {"type": "string", "description": "What the command does, for the user"},
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MOST_SECONDS,
            "description": f"Seconds that it may take, {_SECONDS} unless given",
        },
    },
    "required": ["command"],
}


def terminal_tool(folder: Folder) -> Tool:
    """Return run_in_terminal, whose commands start in this folder."""

    async def run_in_terminal(arguments: dict[str, Any]) -> LanguageModelToolResult:
        command = str(arguments["command"])
        if "\0" in command:
            raise ToolInvocationError("the command contains a NUL character")
        return await _run(folder, command, float(arguments.get("timeout", _SECONDS)))

    return Tool(
        "run_in_terminal",
        "Execute a shell command in the workspace; its output and exit code come back",
        _SCHEMA,
        run_in_terminal,
        frozenset({"shell"}),
        timeout=MOST_SECONDS + 5,
        confirm=question,
    )


def question(arguments: dict[str, Any]) -> str:
    """Return the question to the user: the whole command, with control characters escaped. If it may fill the
    screen, each line is marked, and its size is given after it, so that its end can't be mistaken for the
    question."""
    command = str(arguments["command"])
    lines = [printable(line) for line in command.split("\n")]
    if len(lines) == 1 and len(command) <= _SHORT:
        return f"Run this command?\n{lines[0]}"
    marked = "\n".join(f"| {line}" for line in lines)
    return f"Run this command?\n{marked}\nRun {counted(len(lines), 'line')}, {len(command)} characters?"


class _Output:
    """The beginning and the end of a command's output."""

    def __init__(self) -> None:
        self.size = 0
        self._first = bytearray()
        self._last = bytearray()

    def append(self, data: bytes) -> None:
        self.size += len(data)
        room = _SHOWN - len(self._first)
        self._first += data[:room]
        self._last += data[room:] if room > 0 else data
        if len(self._last) > 2 * _SHOWN:
            del self._last[:-_SHOWN]

    def text(self) -> str:
        left_out = self.size - len(self._first) - len(self._last[-_SHOWN:])
        middle = f"\n… ({left_out} bytes left out) …\n".encode() if left_out else b""
        return (self._first + middle + self._last[-_SHOWN:]).decode(errors="replace")


async def _run(folder: Folder, command: str, seconds: float) -> LanguageModelToolResult:
    status = os.stat(folder.path)
    if (status.st_dev, status.st_ino) != folder.identity:
        raise ToolInvocationError("the folder was replaced by another one")
    limits = [str(int(seconds) + 2), str(_FILE_BLOCKS)]
    # cancelling the start halfway would leave a process that nobody waits for
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            ["/bin/sh", "-c", _LIMITED, "sh", *limits, command],
            cwd=folder.path,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | {"TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    output = _Output()
    try:
        with anyio.move_on_after(seconds) as limit:
            await _wait(process, output)
    finally:
        kill_group(process.pid)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if limit.cancelled_caught:
        ending = f"stopped after {seconds:g} seconds"
    elif output.size > _MOST_OUTPUT:
        ending = f"stopped after {_MOST_OUTPUT} bytes of output"
    else:
        ending = f"exit code {process.returncode}"
    failed = ending != "exit code 0"
    text = output.text().rstrip("\n")
    return LanguageModelToolResult([ToolResultTextPart(f"{text}\n[{ending}]".lstrip("\n"))], is_error=failed)


async def _wait(process: Process, output: _Output) -> None:
    """Wait for the command to end, even if its children keep its output open."""
    ended = anyio.Event()

    async def read() -> None:
        assert process.stdout is not None
        async for data in process.stdout:
            output.append(data)
            if output.size > _MOST_OUTPUT:
                kill_group(process.pid)
                break
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await process.wait()
        with anyio.move_on_after(_DRAIN):
            await ended.wait()
        tasks.cancel_scope.cancel()
