"""Calls → events: the state machine and the blocks it is made of."""

from bridge.emitter.machine import ResponseStreamStateMachine

__all__ = ["ResponseStreamStateMachine"]
