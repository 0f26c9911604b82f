"""Answers judged by JSON Schemas that clients send (`bridge.schemas`), under a deadline."""
