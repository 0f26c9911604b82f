"""Why an upstream was not reached or not heard: for the operator's log and at start-up."""

from __future__ import annotations

import os
import ssl


def cause_of(error: BaseException) -> str:
    """The system's words for a failure of a connection, or the name of the error. Other texts of HTTP
    libraries are left out: they quote what came, or the address with its password."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    found = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if not isinstance(found, OSError) or found.errno is None:
        return type(found).__name__
    # a failed look-up of a name has numbers of its own, below 0, and its own words
    return os.strerror(found.errno) if found.errno > 0 else found.strerror or type(found).__name__
