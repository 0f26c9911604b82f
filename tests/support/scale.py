"""How many examples the property tests make: their own number, times `PROPERTY_FACTOR` of the environment."""

import os
from typing import Final

FACTOR: Final = int(os.environ.get("PROPERTY_FACTOR", "1"))
MANY: Final = int(os.environ.get("PROPERTY_FACTOR", "10"))
"""The factor of tests marked slow, which are there to make many."""
