"""How an answer leaves: whole or streamed, in the form of its surface."""
