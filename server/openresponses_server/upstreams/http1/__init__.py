"""HTTP/1.1 to an upstream: what it sends is translated in the callback in which it arrives, so its
connections are our own. Their parser is llhttp's (httptools)."""
