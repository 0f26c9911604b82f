"""The modules of the inspector's page as files, for Node.js."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from openresponses_server.api.inspector import files
from tests.support.forked_workers import shared_by_workers


@shared_by_workers
@cache
def modules() -> str:
    """Return the address of a folder with the page's modules as the server sends them."""
    folder = Path(tempfile.mkdtemp(prefix="page-"))
    atexit.register(shutil.rmtree, folder)
    for name, file in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder.as_uri() + "/"
