"""Other servers' Responses streams: normalised on the way in, respelled on the way out."""

from openresponses_bridge.dialects.responses.dialect import DIALECT
from openresponses_bridge.dialects.responses.inbound import Inbound, whole_answer
from openresponses_bridge.dialects.responses.outbound import Outbound
from openresponses_bridge.dialects.responses.request import ResponsesOptions, to_responses
from openresponses_bridge.dialects.responses.surface import ResponsesForm

__all__ = [
    "DIALECT",
    "Inbound",
    "Outbound",
    "ResponsesForm",
    "ResponsesOptions",
    "to_responses",
    "whole_answer",
]
