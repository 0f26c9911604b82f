"""Answers judged by JSON Schemas that clients send (`openresponses_bridge.schemas`), under a deadline."""
