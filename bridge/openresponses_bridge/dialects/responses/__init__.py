"""Other servers' Responses streams: normalised on the way in, respelled on the way out."""

from openresponses_bridge.dialects.responses.dialect import DIALECT
from openresponses_bridge.dialects.responses.inbound import Inbound
from openresponses_bridge.dialects.responses.options import ResponsesOptions
from openresponses_bridge.dialects.responses.outbound import Outbound
from openresponses_bridge.dialects.responses.request import to_responses
from openresponses_bridge.dialects.responses.whole import whole_answer

__all__ = ["DIALECT", "Inbound", "Outbound", "ResponsesOptions", "to_responses", "whole_answer"]
