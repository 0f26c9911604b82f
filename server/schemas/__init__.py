"""JSON Schemas that clients send: checked when they come, and answers judged by them under a deadline."""
