"""A client of HTTP/1.1 that gives a body to its sink in the callback in which it arrives. Its parser is
llhttp (httptools)."""
