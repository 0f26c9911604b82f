"""The server beside others, each a process of its own on one core: a model that is made here on one side,
clients that only count on the other, both on the other core."""
