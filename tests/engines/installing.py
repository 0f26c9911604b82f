"""What the engines are made of, from the registries into a folder of the user's cache, by versions: a later
run finds it there.

The model is the tiny one of the shared folder (tests/support/shared.py), without which nothing is installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.shared import shared_root

LLAMA: Final = "0.3.36"
TORCH, TRANSFORMERS = "2.13.0", "5.23.0"
LITELLM: Final = "1.106.2"
SCRIPTED, RANDOM = "scripted", "random"
_CMAKE: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    # half of the compiler's time, and the model is tiny
    "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_CURL=OFF",
)


class NotInstalled(Exception):
    """What is missing, or what failed with the end of what it wrote."""


def cache() -> Path:
    """The folder: that of the user's cache, as the XDG base directories have it."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "openresponses-bridge" / "engines"


def weights(name: str = SCRIPTED) -> Path:
    """A tiny model in llama.cpp's format, in the shared folder or the cache: `scripted` answers by keyword,
    `random` at random. Raises NotInstalled."""
    root = shared_root()
    folders = [cache()] if root is None else [root / "engines", cache()]
    file = next((path for folder in folders if (path := folder / f"{name}.gguf").exists()), None)
    if file is None:
        raise NotInstalled(f"needs {name}.gguf in {' or '.join(map(str, folders))}")
    return file


def llama_server() -> Path:
    """llama.cpp's server, built from the source that the sdist of llama-cpp-python carries. Raises
    NotInstalled."""
    return once(f"llama-cpp-python-{LLAMA}", _build_llama) / "llama-server"


def template() -> Path:
    """A template of a chat with tools and thinking, which the tiny model was trained with. Raises
    NotInstalled."""
    return once(f"llama-cpp-python-{LLAMA}", _build_llama) / "template.jinja"


def transformers() -> Path:
    """An environment with transformers' server. Raises NotInstalled."""
    packages = [f"torch=={TORCH}", f"transformers[serving]=={TRANSFORMERS}", "gguf"]
    return _environment(f"transformers-{TRANSFORMERS}-torch-{TORCH}", packages)


def litellm() -> Path:
    """An environment with LiteLLM's proxy. Raises NotInstalled."""
    return _environment(f"litellm-{LITELLM}", [f"litellm[proxy]=={LITELLM}"])


def transformers_model() -> Path:
    """The scripted model in transformers' layout. Raises NotInstalled."""
    python, source, chat = transformers() / "bin" / "python", weights(), template()

    def convert(folder: Path) -> None:
        run([python, Path(__file__).parent / "convert.py", source, chat, folder], 300)

    return once(f"model-{TRANSFORMERS}", convert)


def agents() -> Path:
    """The folder with a model that calls the tools which agents have for commands, `agents.gguf`, and the
    template of its chats, `agents.jinja`. Raises NotInstalled."""
    program = Path(__file__).parent / "train.py"
    python, source, chat = transformers() / "bin" / "python", weights(), template()
    made_by = hashlib.sha256(program.read_bytes()).hexdigest()[:12]
    return once(f"agents-{made_by}", lambda folder: run([python, program, source, chat, folder], 300))


ALL: Final[dict[str, Callable[[], Path]]] = {
    "llama-server": llama_server,
    "transformers": transformers_model,
    "LiteLLM": litellm,
    "the agents' model": agents,
}


def _build_llama(folder: Path) -> None:
    for program in ("cmake", "ninja", "c++"):
        if shutil.which(program) is None:
            raise NotInstalled(f"llama-server needs {program} to be built")
    build, name = folder / "build", f"llama-cpp-python=={LLAMA}"
    options = ["--quiet", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", folder]
    run([sys.executable, "-m", "pip", "download", *options, name], 600)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as packed:
        packed.extractall(folder / "source", filter="data")
    vendored = next(folder.glob("source/*/vendor/llama.cpp"))
    run(["cmake", "-B", build, "-G", "Ninja", *_CMAKE, vendored], 300)
    run(["ninja", "-C", build, "llama-server"], 7200)
    shutil.copy(build / "bin" / "llama-server", folder / "llama-server")
    shutil.copy(vendored / "models" / "templates" / "Qwen-Qwen3-0.6B.jinja", folder / "template.jinja")
    for rest in ("build", "source"):
        shutil.rmtree(folder / rest)


def _environment(name: str, packages: list[str]) -> Path:
    weights()  # without a model there is nothing to serve

    def make(folder: Path) -> None:
        run([sys.executable, "-m", "venv", folder], 300)
        run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *packages], 1800)

    return once(name, make)


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name, made at its first use; one that was left half made is made again."""
    folder = cache() / name
    done = folder / ".done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        done.touch()
    return folder


def run(command: list[object], seconds: float) -> None:
    words = [str(each) for each in command]
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"{words[:4]} took more than {seconds:.0f} s") from error
    except (OSError, subprocess.CalledProcessError) as error:
        output = (getattr(error, "stdout", "") or "") + (getattr(error, "stderr", "") or "")
        raise NotInstalled(f"{' '.join(words[:4])}: {output[-800:] or error}") from error
