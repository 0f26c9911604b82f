"""Calls → events: the state machine and the blocks it is made of."""

from openresponses_bridge.emitter.machine import ResponseStreamStateMachine

__all__ = ["ResponseStreamStateMachine"]
