"""`LanguageModelChatProvider`: VS Code's provider interface for any model (RFC 016's façade).

The chat becomes a request, a `Backend` answers it with events, `process_stream` converts these to parts, and
`UsageTracker` counts the usage.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypedDict, Unpack
from uuid import uuid4

from openresponses_bridge.decoder import (
    Cancellation,
    Part,
    PartDecoder,
    Progress,
    StreamResult,
    process_stream,
)
from openresponses_bridge.decoder.part_decoder import ErrorPolicy
from openresponses_bridge.dialects.vscode import (
    ChatMessage,
    ChatRequest,
    LanguageModelError,
    Role,
    chat_of,
    conversation_digest,
    from_vscode,
    read_message,
)
from openresponses_bridge.dialects.vscode.request import token_count
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.models.tokens import TokenCounter, TokenEstimator
from openresponses_bridge.models.usage import UsageTracker
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.upstreams.listing import Listing

Information = dict[str, Any]
"""VS Code's LanguageModelChatInformation, in its names; limits are tokens."""
Failures = Literal["text", "raise"]
_ERROR_POLICIES: Final[dict[Failures, ErrorPolicy]] = {"text": "text", "raise": "notes"}
_MAX_MARKERS: Final = 256  # conversations that can be continued
_RETRIED_STATUSES: Final = frozenset({400, 404, 409})


class Backend(Protocol):
    """Answers requests: `OpenResponsesClient`, or this server's models in the same process."""

    def stream(self, request: CreateResponse, cancel: Cancellation | None = None) -> AsyncIterator[Event]: ...


class ProviderOptions(TypedDict, total=False):
    """The options of `LanguageModelChatProvider`."""

    tracker: UsageTracker
    tokens: TokenCounter
    failures: Failures
    trace: Callable[[str], None]


class LanguageModelChatProvider:
    """A provider of the models of `listing`, answered by `backend`. Messages, tools and options are VS
    Code's, as structs of `openresponses_bridge.dialects.vscode` or as their JSON.

    `failures` says whether a failure after the first part becomes a line of text or is raised. `tracker`
    counts usage, each response as an agent of its own; `tokens` estimates tokens. `trace` gets a line for
    each event of an answer: the kinds of parts that it made, never content.
    """

    def __init__(
        self,
        backend: Backend,
        listing: Listing,
        **options: Unpack[ProviderOptions],
    ) -> None:
        self.tracker = options.get("tracker") or UsageTracker()
        self._backend = backend
        self._listing = listing
        self._tokens = options.get("tokens") or TokenEstimator()
        self._failures: Failures = options.get("failures", "text")
        self._trace = options.get("trace")
        self._conversations: OrderedDict[str, str] = OrderedDict()
        """Marker → digest of the chat that it stands for, with the answer."""

    def on_did_change_language_model_chat_information(
        self, callback: Callable[[int], None]
    ) -> Callable[[], None]:
        """Call `callback` with an increasing number when the list of models has changed. Returns a function
        that ends this."""
        return self._listing.on_change(callback)

    async def provide_language_model_chat_information(self, *, refresh: bool = False) -> list[Information]:
        """Return the models, listed again at most once a minute, or now with `refresh`."""
        return [model.information() for model in await self._listing.enriched(refresh=refresh)]

    async def provide_token_count(
        self, model: str | Information, text: str | ChatMessage | Mapping[str, Any]
    ) -> int:
        """Estimate the tokens of a text or message for a model."""
        content = text if isinstance(text, str | ChatMessage) else read_message(dict(text), "text")
        return token_count(content, self._tokens, _name(model))

    async def provide_language_model_chat_response(
        self,
        model: str | Information,
        messages: Sequence[ChatMessage | Mapping[str, Any]],
        options: Mapping[str, Any],
        progress: Progress,
        cancel: Cancellation | None = None,
    ) -> StreamResult:
        """Report the parts of the answer. `options` are `tools`, `toolMode`, `modelOptions`,
        `modelConfiguration`, `includeEncryptedThinking` and `store`.

        Raises LanguageModelError for a request that is refused or fails before any part, and
        InvalidRequestError for one that can't be read.
        """
        chat = chat_of({**options, "model": _name(model), "messages": list(messages)})
        whole, _ = from_vscode(chat)
        agent, limit = f"agent_{uuid4().hex[:16]}", _max_input(model)
        self.tracker.start_request(agent, self._tokens.request(whole, (), chat.model), limit, chat.model)
        recording = _RecordingProgress(progress)
        result: StreamResult | None = None
        failed = True
        try:
            result = await self._respond(chat, whole, recording, cancel)
            failed = result.error is not None
            if result.error is not None and self._failures == "raise":
                raise LanguageModelError(result.error.message, result.error.code)
        except BridgeError as error:
            raise LanguageModelError.of(error) from error
        except CancelledError:
            failed = False
            raise
        finally:
            usage = None if result is None else result.usage
            if failed:
                self.tracker.fail_request(agent, chat.model, usage)
            else:
                self.tracker.complete_request(agent, usage, chat.model)
        if result.stateful_marker is not None:
            self._remember(result.stateful_marker, whole, recording.parts)
        return result

    async def _respond(
        self,
        chat: ChatRequest,
        whole: CreateResponse,
        recording: _RecordingProgress,
        cancel: Cancellation | None,
    ) -> StreamResult:
        """Return the answer to what is new since the marker, if the server still has what the marker names;
        otherwise to the whole chat."""
        rest = self._continuation(chat, whole)
        if rest is not None:
            try:
                return await self._process(chat, rest, recording, cancel)
            except BridgeError as error:
                if error.http_status not in _RETRIED_STATUSES:
                    raise
        return await self._process(chat, whole, recording, cancel)

    async def _process(
        self,
        chat: ChatRequest,
        request: CreateResponse,
        recording: _RecordingProgress,
        cancel: Cancellation | None,
    ) -> StreamResult:
        decoder = PartDecoder(
            errors=_ERROR_POLICIES[self._failures],
            no_response=True,
            model=chat.model,
            include_encrypted_thinking=chat.include_encrypted_thinking is True,
            repair=True,
            trace=self._trace,
        )
        return await process_stream(self._backend.stream(request, cancel), recording, cancel, decoder=decoder)

    def _continuation(self, chat: ChatRequest, whole: CreateResponse) -> CreateResponse | None:
        """Return the request for what follows the last marker, if the chat before the marker is the one that
        it was given for; else None."""
        marked, _ = from_vscode(chat, use_markers=True)
        known = self._conversations.get(marked.previous_response_id or "")
        if known is None or not marked.input:
            return None
        claimed = _items(whole)[: len(_items(whole)) - len(marked.input)]
        return marked if conversation_digest(claimed) == known else None

    def _remember(self, marker: str, whole: CreateResponse, parts: list[Part]) -> None:
        answer, _ = from_vscode(ChatRequest("", [ChatMessage(Role.ASSISTANT, list(parts))]))
        self._conversations[marker] = conversation_digest([*_items(whole), *_items(answer)])
        while len(self._conversations) > _MAX_MARKERS:
            self._conversations.popitem(last=False)


class _RecordingProgress:
    """Passes parts on, and records them."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.parts: list[Part] = []

    def report(self, part: Part, /) -> object:
        self.parts.append(part)
        return self._progress.report(part)


def _items(request: CreateResponse) -> list[InputItem]:
    return request.input if isinstance(request.input, list) else []


def _name(model: str | Information) -> str:
    return model if isinstance(model, str) else str(model["id"])


def _max_input(model: str | Information) -> int:
    return 0 if isinstance(model, str) else int(model.get("maxInputTokens") or 0)
