"""Google's Gemini API, `generateContent`."""

from openresponses_bridge.dialects.gemini.client.answer import Candidates, answer
from openresponses_bridge.dialects.gemini.client.ending import error_body
from openresponses_bridge.dialects.gemini.client.model_list import model_body, model_page
from openresponses_bridge.dialects.gemini.client.outbound import Outbound, encode_sse
from openresponses_bridge.dialects.gemini.client.request import AnswerOptions, answer_options, from_gemini
from openresponses_bridge.dialects.gemini.dialect import DIALECT
from openresponses_bridge.dialects.gemini.options import GeminiOptions
from openresponses_bridge.dialects.gemini.types import encode_chunk
from openresponses_bridge.dialects.gemini.upstream.inbound import Inbound
from openresponses_bridge.dialects.gemini.upstream.request import to_gemini

__all__ = [
    "DIALECT",
    "AnswerOptions",
    "Candidates",
    "GeminiOptions",
    "Inbound",
    "Outbound",
    "answer",
    "answer_options",
    "encode_chunk",
    "encode_sse",
    "error_body",
    "from_gemini",
    "model_body",
    "model_page",
    "to_gemini",
]
