"""Stored responses and the conversations that they chain into."""
