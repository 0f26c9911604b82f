"""The servers that tests here share, and what these use."""

from tests.support.server_fixtures import *  # noqa: F403
from tests.support.server_fixtures import _as_it_was, _data_folder  # noqa: F401
