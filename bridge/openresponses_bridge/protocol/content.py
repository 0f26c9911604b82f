"""Content parts, and what belongs to them: annotations and log probabilities.

Names are the published schema's. `…Param` is the request side, where fewer fields are required. Lengths and
indexes count Unicode code points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.protocol.unknown import Extensible, UnknownAnnotation, UnknownPart

ImageDetail = Literal["low", "high", "auto", "original"]


class TopLogProb(Struct, frozen=True):
    """Schema TopLogProb: one alternative token; `bytes` are its UTF-8 bytes."""

    token: str
    logprob: float
    bytes: list[int]


class LogProb(Struct, frozen=True):
    """Schema LogProb: a sampled token with its alternatives, natural logarithm."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogProb]


class UrlCitation(Extensible, frozen=True, tag="url_citation", tag_field="type"):
    """Schema UrlCitationBody: text[start_index:end_index] cites `url`. Our `encrypted_content` is the
    citation as the upstream that made it wants it back, sealed."""

    type: ClassVar[Literal["url_citation"]] = "url_citation"
    url: str
    start_index: int
    end_index: int
    title: str
    encrypted_content: str | UnsetType = UNSET


class FileCitation(Extensible, frozen=True, tag="file_citation", tag_field="type"):
    """OpenAI: a citation of an uploaded file at `index`."""

    type: ClassVar[Literal["file_citation"]] = "file_citation"
    file_id: str
    index: int
    filename: str | UnsetType = UNSET


class ContainerFileCitation(Extensible, frozen=True, tag="container_file_citation", tag_field="type"):
    """OpenAI: a citation of a file a code interpreter made."""

    type: ClassVar[Literal["container_file_citation"]] = "container_file_citation"
    container_id: str
    file_id: str
    start_index: int
    end_index: int
    filename: str | UnsetType = UNSET


class FilePath(Extensible, frozen=True, tag="file_path", tag_field="type"):
    """OpenAI: a path to a generated file."""

    type: ClassVar[Literal["file_path"]] = "file_path"
    file_id: str
    index: int


class InputTextContent(Extensible, frozen=True, tag="input_text", tag_field="type"):
    """Schema InputTextContent, on either side."""

    type: ClassVar[Literal["input_text"]] = "input_text"
    text: str


class OutputTextContent(Extensible, frozen=True, tag="output_text", tag_field="type"):
    """Schema OutputTextContent. The schema makes `logprobs` optional; the bridge always sends it."""

    type: ClassVar[Literal["output_text"]] = "output_text"
    text: str
    annotations: list[Annotation]
    logprobs: list[LogProb] | UnsetType = UNSET


class OutputTextParam(Extensible, frozen=True, tag="output_text", tag_field="type"):
    """Schema OutputTextContentParam: an assistant's text sent back."""

    type: ClassVar[Literal["output_text"]] = "output_text"
    text: str
    annotations: list[Annotation] | UnsetType | None = UNSET


class TextContent(Extensible, frozen=True, tag="text", tag_field="type"):
    """Schema TextContent."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class SummaryTextContent(Extensible, frozen=True, tag="summary_text", tag_field="type"):
    """Schema SummaryTextContent: one part of a reasoning summary."""

    type: ClassVar[Literal["summary_text"]] = "summary_text"
    text: str


class ReasoningTextContent(Extensible, frozen=True, tag="reasoning_text", tag_field="type"):
    """Schema ReasoningTextContent: raw reasoning."""

    type: ClassVar[Literal["reasoning_text"]] = "reasoning_text"
    text: str


class RefusalContent(Extensible, frozen=True, tag="refusal", tag_field="type"):
    """Schema RefusalContent."""

    type: ClassVar[Literal["refusal"]] = "refusal"
    refusal: str


class InputImageContent(Extensible, frozen=True, tag="input_image", tag_field="type"):
    """Schema InputImageContent: `image_url` is a URL or a data URL."""

    type: ClassVar[Literal["input_image"]] = "input_image"
    image_url: str | None
    detail: ImageDetail


class InputImageParam(Extensible, frozen=True, tag="input_image", tag_field="type"):
    """Schema InputImageContentParamAutoParam, with OpenAI's `file_id`."""

    type: ClassVar[Literal["input_image"]] = "input_image"
    image_url: str | UnsetType | None = UNSET
    detail: ImageDetail | UnsetType | None = UNSET
    file_id: str | UnsetType | None = UNSET


class InputFileContent(Extensible, frozen=True, tag="input_file", tag_field="type"):
    """Schema InputFileContent and InputFileContentParam: `file_data` is base64 or a data URL."""

    type: ClassVar[Literal["input_file"]] = "input_file"
    filename: str | UnsetType | None = UNSET
    file_data: str | UnsetType | None = UNSET
    file_url: str | UnsetType | None = UNSET
    file_id: str | UnsetType | None = UNSET


class InputVideoContent(Extensible, frozen=True, tag="input_video", tag_field="type"):
    """Schema InputVideoContent."""

    type: ClassVar[Literal["input_video"]] = "input_video"
    video_url: str


KnownAnnotation = UrlCitation | FileCitation | ContainerFileCitation | FilePath
KnownContentPart = (
    InputTextContent
    | OutputTextContent
    | TextContent
    | SummaryTextContent
    | ReasoningTextContent
    | RefusalContent
    | InputImageContent
    | InputFileContent
    | InputVideoContent
)
KnownInputPart = (
    InputTextContent
    | OutputTextParam
    | TextContent
    | SummaryTextContent
    | ReasoningTextContent
    | RefusalContent
    | InputImageParam
    | InputFileContent
    | InputVideoContent
)

# msgspec can't decode a union of structs and a plain class, so only the type checker sees the unknown member;
# `lenient` creates such values when a peer sends them.
if TYPE_CHECKING:
    Annotation = KnownAnnotation | UnknownAnnotation
    ContentPart = KnownContentPart | UnknownPart
    InputPart = KnownInputPart | UnknownPart
else:
    Annotation = KnownAnnotation
    ContentPart = KnownContentPart
    InputPart = KnownInputPart
