"""Everything that does I/O: the HTTP server, its upstreams and stores, and the command line."""
