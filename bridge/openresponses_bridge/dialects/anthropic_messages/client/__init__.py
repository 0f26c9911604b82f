"""We answer somebody who speaks this."""
