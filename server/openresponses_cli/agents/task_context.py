"""The context of a task: the files that it names or that are attached, and the workspace.

Files that the task names (`#file:PATH`) are read in the folder, as tools read them. Git is not run, because
`git status` runs programs that the repository's configuration names: branch and repository are read from its
files.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from openresponses_agent.prompt import Attachment, Base64Image, GlobalContext, Reference
from openresponses_agent.tools.errors import ToolInvocationError
from openresponses_cli.agents.tools.files import decoded, image_type
from openresponses_cli.agents.tools.folder import MOST_BYTES, Folder
from openresponses_cli.agents.tools.texts import SKIPPED

_MOST_FILES: Final = 50
_MOST_HEAD: Final = 1_000  # bytes
_MOST_CONFIG: Final = 100_000
_NAMED: Final = re.compile(r'(?<!\S)#file:(?:"([^"\n]+)"|(\S+))')
_PUNCTUATION: Final = ".,;:!?)]}'\""
_BRANCH: Final = "ref: refs/heads/"
_HASH: Final = 12  # digits of a commit that is checked out without a branch


class TaskAttachments(NamedTuple):
    """The files that are sent to the model with the question, and references to those in the folder."""

    files: list[Attachment]
    references: list[Reference]


def attachments_of(task: str, folder: Folder, files: Iterable[Path] = ()) -> TaskAttachments:
    """Return the attached files, then those that the task names. Raises ToolInvocationError for a file that
    can't be read or is neither text nor an image, and for more than 50."""
    attachments = [_attachment(path.name, _content(path)) for path in files]
    references = list[Reference]()
    for mention in _named(task):
        path, data = _read(folder, mention)
        name = f"#file:{path}"
        if all(each.name != name for each in references):
            attachments.append(_attachment(path, data))
            references.append(Reference(name))
    if len(attachments) > _MOST_FILES:
        raise ToolInvocationError(f"more than {_MOST_FILES} files are attached")
    return TaskAttachments(attachments, references)


def _named(task: str) -> Iterator[str]:
    for match in _NAMED.finditer(task):
        yield match[1] or match[2]


def _read(folder: Folder, mention: str) -> tuple[str, bytes]:
    """Read a file named by the text after `#file:`, which may end with the punctuation of a sentence."""
    try:
        return mention, folder.read(mention)
    except ToolInvocationError as error:
        plain = mention.rstrip(_PUNCTUATION)
        if plain == mention:
            raise ToolInvocationError(f"#file:{mention}: {error.message}") from error
        return _read(folder, plain)


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise ToolInvocationError(f"{str(path)!r} is not a file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ToolInvocationError(f"{str(path)!r}: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise ToolInvocationError(f"{str(path)!r} is larger than {MOST_BYTES} bytes")
    return data


def _attachment(name: str, data: bytes) -> Attachment:
    media_type = image_type(data)
    if media_type is not None:
        return Attachment(name=name, image=Base64Image(media_type, base64.b64encode(data).decode()))
    return Attachment(name=name, text=decoded(data, name), language=Path(name).suffix.removeprefix("."))


def global_context(
    folder: Folder,
    workspace: str,
    *,
    open_files: Iterable[str] = (),
    modified_files: Iterable[str] = (),
    notes: Iterable[str] = (),
) -> GlobalContext:
    """Return the workspace as the system text describes it; `notes` are added unchanged."""
    return GlobalContext(
        workspace_root=workspace,
        folders=[
            name
            for name, kind in folder.entries("")
            if kind == "folder" and name not in SKIPPED and not name.startswith(".")
        ],
        open_files=list(open_files),
        repository=_repository(folder),
        git_branch=_branch(folder),
        modified_files=list(modified_files),
        notes=list(notes),
    )


def _branch(folder: Folder) -> str:
    head = _git_file(folder, ".git/HEAD", _MOST_HEAD).strip()
    return head.removeprefix(_BRANCH) if head.startswith(_BRANCH) else head[:_HASH] if head.isalnum() else ""


def _repository(folder: Folder) -> str:
    """Return `owner/name` of the remote named origin, and not its address, which may have a password in
    it."""
    section = ""
    for line in _git_file(folder, ".git/config", _MOST_CONFIG).splitlines():
        plain = line.strip()
        if plain.startswith("["):
            section = plain
        elif section == '[remote "origin"]' and plain.replace(" ", "").startswith("url="):
            path = plain.partition("=")[2].strip().removesuffix("/").removesuffix(".git")
            parts = path.rpartition("@")[2].replace(":", "/").split("/")
            return "/".join(parts[-2:]) if len(parts) > 1 else ""
    return ""


def _git_file(folder: Folder, path: str, most: int) -> str:
    try:
        return folder.read(path, most).decode(errors="replace")
    except ToolInvocationError:
        return ""
