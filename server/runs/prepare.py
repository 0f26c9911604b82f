"""A request → a generation: its model's upstream, its history, the body that goes out, the machine."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog

from bridge.diagnostics import Diagnostics
from bridge.emitter.machine import ResponseStreamStateMachine
from bridge.protocol.request import CreateResponse

from server.runs.generation import Generation
from server.runs.run import Run
from server.sessions.base import ResponseStore
from server.sessions.history import own_input, with_history
from server.settings import Settings
from server.upstreams.base import UpstreamRequest
from server.upstreams.routing import Router
from server.wire import choose_wire
