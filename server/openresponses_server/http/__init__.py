"""The server's connections below ASGI: uvicorn's protocols with limits on size, time and number; and the
client's, in `client`.

This covers everything before a request is complete, and so before authentication.
"""
