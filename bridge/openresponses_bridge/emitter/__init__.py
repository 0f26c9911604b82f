"""Converts calls into events: the state machine and the blocks of which it consists."""

from openresponses_bridge.emitter.machine import ResponseStreamStateMachine

__all__ = ["ResponseStreamStateMachine"]
