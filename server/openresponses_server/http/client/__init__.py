"""HTTP/1.1 to a server: what an upstream sends is translated in the callback in which it arrives, so these
connections are our own. Their parser is llhttp's (httptools)."""
