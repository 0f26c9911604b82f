"""Other servers' Responses streams: normalised on the way in, respelled on the way out."""

from bridge.dialects.responses.dialect import DIALECT
from bridge.dialects.responses.inbound import Inbound
from bridge.dialects.responses.options import ResponsesOptions
from bridge.dialects.responses.outbound import Outbound
from bridge.dialects.responses.request import to_responses
from bridge.dialects.responses.whole import whole_answer

__all__ = ["DIALECT", "Inbound", "Outbound", "ResponsesOptions", "to_responses", "whole_answer"]
