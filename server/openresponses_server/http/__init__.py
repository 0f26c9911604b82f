"""The server's connections below ASGI: uvicorn's protocols with limits on size, time and number.

What happens before a request is known, and so before authentication, is decided here.
"""
