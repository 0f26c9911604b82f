"""The forms in which an answer leaves: one per surface."""
