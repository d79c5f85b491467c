"""Chinese texts by their English key."""

from collections.abc import Mapping
from typing import Final

CHINESE: Final[Mapping[str, str]] = {}
