"""The frames of runs as they are sent, for all readers."""
