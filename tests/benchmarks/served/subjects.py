"""The subjects: the server, and other programs for the same purpose. Each is a process on the measured
core."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

MEASURED, BESIDE = 0, 1
"""The measured core, and the core of the model process and the clients."""
_STARTS: Final = 120.0  # seconds


class Subject(NamedTuple):
    """A program to measure: the command that starts it on a port, over the model process on another port,
    with files in a folder of its own; and the path of its requests. Works that it can't do are not asked of
    it."""

    name: str
    command: Callable[[int, int, Path], list[str] | None]
    path: str
    cannot: frozenset[str] = frozenset()


class Process(NamedTuple):
    """A subject that answers on `port`; `pid` is its first process, and the others are children of that."""

    port: int
    pid: int

    @property
    def pids(self) -> list[int]:
        """The ids of its present processes."""
        return [self.pid, *_children(self.pid)]

    def cpu(self) -> float:
        """Seconds of CPU of its threads, from the scheduler's own count."""
        return sum(map(_on_core, self.pids)) / 1e9

    def resident(self) -> float:
        """Resident megabytes."""
        return sum(_resident(pid) for pid in self.pids) / 1024


def _on_core(pid: int) -> int:
    return sum(
        int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def pinned(core: int | None, command: list[str]) -> list[str]:
    return ["taskset", "-c", str(core), *command] if core is not None and shutil.which("taskset") else command


@contextmanager
def model_side(core: int | None = BESIDE) -> Iterator[int]:
    """The port of a model process, which all subjects use."""
    port = free_port()
    model = subprocess.Popen(pinned(core, [sys.executable, "-m", "tests.benchmarks.served.model", str(port)]))
    try:
        time.sleep(1)
        yield port
    finally:
        model.kill()
        model.wait()


@contextmanager
def running(
    subject: Subject, model_port: int, folder: Path, core: int | None = MEASURED
) -> Iterator[Process | None]:
    """Run a subject on one core, or on all of them. Yields None if it is not installed."""
    port = free_port()
    folder.mkdir()
    command = subject.command(port, model_port, folder)
    if command is None:
        yield None
        return
    environment = {**os.environ, "HOME": str(folder), "no_proxy": "127.0.0.1"}
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            pinned(core, command), cwd=folder, env=environment, stdout=output, stderr=output
        )
    try:
        _wait_for(port, process, subject.name, folder)
        yield Process(port, process.pid)
    finally:
        process.terminate()
        process.wait(20)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_for(port: int, process: subprocess.Popen[bytes], name: str, folder: Path) -> None:
    until = time.monotonic() + _STARTS
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{name} did not start: {(folder / 'output').read_text()[-500:]}")


def _nginx(port: int, model: int, folder: Path) -> list[str] | None:
    if shutil.which("nginx") is None:
        return None
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 1; master_process off; pid {folder}/pid; error_log {folder}/errors;\n"
        "events { worker_connections 8192; }\n"
        "http { access_log off;\n"
        f"  upstream model {{ server 127.0.0.1:{model}; keepalive 64; }}\n"
        f"  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://model;\n"
        "    proxy_http_version 1.1; proxy_set_header Connection ''; proxy_buffering off; }\n"
        "  } }\n"
    )
    return ["nginx", "-p", str(folder), "-c", str(config)]


def _copier(script: str) -> Callable[[int, int, Path], list[str]]:
    def command(port: int, model: int, _folder: Path) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name(script)), str(port), str(model)]

    return command


def _relay(port: int, model: int, folder: Path) -> list[str] | None:
    program = shutil.which("codex-relay")
    return program and [
        program,
        "--port",
        str(port),
        "--upstream",
        f"http://127.0.0.1:{model}/v1",
        "--api-key",
        "x",
    ]


def _agentic(port: int, model: int, folder: Path) -> list[str] | None:
    program = shutil.which("agentic-server")
    return program and [
        program,
        *("--gateway-host", "127.0.0.1", "--gateway-port", str(port), "--skip-llm-ready-check"),
        *("--llm-api-base", f"http://127.0.0.1:{model}", "--db-url", f"sqlite://{folder}/bench.db"),
    ]


def _litellm(port: int, model: int, folder: Path) -> list[str] | None:
    program = shutil.which("litellm")
    if program is None:
        return None
    config = folder / "litellm.yaml"
    config.write_text(
        "model_list:\n  - model_name: '*'\n    litellm_params:\n      model: 'hosted_vllm/*'\n"
        f"      api_base: http://127.0.0.1:{model}/v1\n      api_key: x\n"
    )
    return [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]


def ours(*more: str, config: str = "") -> Callable[[int, int, Path], list[str]]:
    """The command of this server over a Chat upstream, with limits that are high enough."""

    def command(port: int, model: int, folder: Path) -> list[str]:
        file = folder / "config.toml"
        file.write_text(
            f'[[upstreams]]\nurl = "http://127.0.0.1:{model}/v1"\n{config}\n'
            "[limits]\nconcurrent = 5000\nconcurrent_per_key = 5000\n"
        )
        serve = [
            sys.executable,
            "-m",
            "openresponses_server",
            "serve",
            "--config",
            str(file),
            "--port",
            str(port),
        ]
        return [*serve, "--store", f"sqlite:///{folder}/bench.db", *more]

    return command


SUBJECTS: Final = (
    Subject("nginx", _nginx, "/v1/chat/completions"),
    Subject("bytes copied in Python", _copier("copier.py"), "/v1/chat/completions"),
    Subject("bytes copied by Starlette", _copier("starlette_copier.py"), "/v1/chat/completions"),
    Subject("codex-relay", _relay, "/v1/responses", frozenset({"arguments"})),
    Subject("agentic-api", _agentic, "/v1/responses", frozenset({"arguments"})),
    Subject("LiteLLM", _litellm, "/v1/responses"),
    Subject("ours", ours(), "/v1/responses"),
)
