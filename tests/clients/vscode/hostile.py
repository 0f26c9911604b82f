"""A server that behaves as the extension does not expect. The name of the model, or the path before
`/vscode/v1/`, selects its answer. It records the requests, and the key of each."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

MEGABYTE = b"x" * 2**20
LINE_MEGABYTES = 100
HEAD = b"HTTP/1.1 %d Any\r\ncontent-type: %s\r\n%sconnection: close\r\n"
HTML, JSONL, JSON = b"text/html", b"application/jsonl", b"application/json"
TEXT = b'{"type":"LanguageModelTextPart","value":"Once upon "}\n'


@dataclass
class Asked:
    """One request. `sent` counts the bytes of the answer's body."""

    path: str
    key: str | None
    sent: int = 0


class Hostile:
    """A context manager; `asked` are the requests in order."""

    def __init__(self, elsewhere: str = "") -> None:
        self.asked: list[Asked] = []
        self.url = ""
        self._elsewhere = elsewhere.encode()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=[self._main()], daemon=True
        )

    def __enter__(self) -> Hostile:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.url = "http://{}:{}".format(*server.sockets[0].getsockname())
        self._ready.set()
        await self._stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head[1:]}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            request = Asked(head[0].split()[1], headers.get("authorization"))
            self.asked.append(request)
            await self._play(request, json.loads(body or b"{}"), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _play(self, asked: Asked, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        before, _, after = asked.path.partition("/vscode/v1/")
        kind = before.strip("/") or ("tokens" if after == "tokens" else body.get("model", "models"))

        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()
            asked.sent += len(data)

        async def start(status: int = 200, media: bytes = JSONL, more: bytes = b"") -> None:
            writer.write(HEAD % (status, media, more) + b"transfer-encoding: chunked\r\n\r\n")
            await writer.drain()

        async def piece(data: bytes) -> None:
            await send(b"%x\r\n%s\r\n" % (len(data), data))

        async def whole(data: bytes, status: int = 200, media: bytes = JSON, more: bytes = b"") -> None:
            length = b"content-length: %d\r\n\r\n" % len(data)
            await send(HEAD % (status, media, more) + length + data)

        async def stalls() -> None:
            await start()
            await piece(TEXT)
            await asyncio.sleep(3600)

        async def endless() -> None:
            await start()
            for _ in range(LINE_MEGABYTES):
                await piece(MEGABYTE)

        async def cut() -> None:
            await start()
            await piece(TEXT + b'{"type":"LanguageModelTe')
            await send(b"0\r\n\r\n")

        async def reset() -> None:
            await start()
            await piece(TEXT)
            await asyncio.sleep(0.2)
            writer.transport.abort()

        async def lines(*sent: bytes) -> None:
            await start()
            await piece(b"".join(line + b"\n" for line in sent))
            await send(b"0\r\n\r\n")

        plays: dict[str, Callable[[], Awaitable[None]]] = {
            "models": lambda: whole(json.dumps(self._listed()).encode()),
            "tokens": lambda: whole(b'{"tokens":"many"}'),
            "text": lambda: lines(TEXT.strip()),
            "html": lambda: whole(b"<html>Please log in</html>", media=HTML),
            "html-error": lambda: whole(b"<html>Bad gateway</html>", 502, HTML),
            "redirect": lambda: whole(b"", 307, more=b"location: %s/vscode/v1/chat\r\n" % self._elsewhere),
            "silent": lambda: asyncio.sleep(3600),
            "stalls": stalls,
            "endless": endless,
            "bomb": lambda: whole(_BOMB, media=JSONL, more=b"content-encoding: gzip\r\n"),
            "cut": cut,
            "reset": reset,
            "garbage": lambda: lines(TEXT.strip(), b"<html>"),
            "array": lambda: lines(b"[1]"),
            "odd": lambda: lines(*_ODD),
            "unauthorized": lambda: whole(_error("NoPermissions", "Who are you?"), 401),
            "long-error": lambda: whole(_error("server_error", "x" * 10**6), 500),
            "wrong-shape": lambda: whole(b'{"models": 7}'),
            "no-list": lambda: whole(b'{"status": "ok"}'),
            "no-ids": lambda: whole(b'{"models": [null, {"id": ""}, {"id": "a\\u0000b"}]}'),
            "odd-version": lambda: whole(b'{"version": {"toString": 1}, "models": {}}'),
        }
        await plays[kind]()

    def _listed(self) -> dict[str, Any]:
        names = (*ANSWERS, *("redirect", "unauthorized", "text"))
        rest = {"name": 7, "family": None, "maxInputTokens": "many", "capabilities": "all"}
        odd: list[Any] = [None, 3, {"name": "no id"}, {"id": ["x"]}, {"id": ""}, {"id": "a\0b"}]
        listed = [{"id": name, **rest} for name in dict.fromkeys(names)]
        return {"version": ["?"], "models": [*odd, *listed, _ODD_MODEL]}


LISTS = (
    *("html", "html-error", "redirect", "silent", "endless", "bomb", "garbage"),
    *("wrong-shape", "no-list", "no-ids", "odd-version"),
)
"""Answers to requests for the models."""
ANSWERS = (
    *("html", "html-error", "redirect", "silent", "stalls", "endless", "bomb", "cut", "reset"),
    *("garbage", "array", "odd", "unauthorized", "long-error"),
)
"""Answers to requests in a chat."""
ADDRESSES = (
    "",
    "nonsense",
    "ftp://127.0.0.1",
    "file:///etc",
    "http://user:word@127.0.0.1",
    "http://127.0.0.1/?a=b",
)
"""Texts that are not valid addresses."""
_EFFORT = {"type": [], "enum": [{}, "low", "x" * 10**5], "pattern": "(a+)+$", "default": {}}
_ODD_MODEL = {
    "id": "odd-model",
    "name": "n" * 10**6,
    "family": "\u202e\0\a family",
    "version": {},
    "tooltip": "[Log in](command:workbench.action.quit) ![](https://a.example/x.png)",
    "capabilities": {"toolCalling": -1, "imageInput": "yes", "editTools": ["apply-patch"]},
    "isDefault": True,
    "requiresAuthorization": {"label": "x"},
    "isUserSelectable": {},
    "pricing": "\r\n" * 10**5,
    "configurationSchema": {"properties": {"reasoningEffort": _EFFORT, "__proto__": []}},
}
"""A model whose every field is wrong. Its `editTools` alone would be enough to hide all models."""
_BOMB = gzip.compress(b" " * LINE_MEGABYTES * 2**20, 1)
_ODD = (
    b'{"type":"constructor"}',
    b'{"type":"__proto__","value":"x"}',
    b'{"__proto__":{"type":"LanguageModelTextPart","value":"no"}}',
    b'{"type":7}',
    b"{}",
    b'{"error":"not an object"}',
    b'{"type":"LanguageModelToolResultPart","callId":"x","content":[]}',
    b'{"type":"LanguageModelDataPart","data":"bm90IEpTT04=","mimeType":"usage"}',
    b'{"type":"LanguageModelDataPart","data":"e30=","mimeType":"usage"}',
    b'{"type":"LanguageModelDataPart","data":"%%%"}',
    b'{"type":"LanguageModelTextPart"}',
    b'{"type":"LanguageModelTextPart","value":["x"]}',
    b'{"type":"LanguageModelThinkingPart"}',
    b'{"type":"LanguageModelToolCallPart","input":null}',
    b'{"type":"LanguageModelTextPart","value":"The end."}',
)


def _error(code: str, message: str) -> bytes:
    error = {
        "name": "LanguageModelError",
        "code": code,
        "message": message,
        "cause": {"status": 1, "code": "x"},
    }
    return json.dumps({"error": error}).encode()
