"""Reads objects that say how many pods of theirs start together."""

import logging
from typing import Final

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError, UnreadableError
from clearway.adapters.kubernetes.gangs import Size, Source, gang_size
from clearway.adapters.kubernetes.pace import PAUSE_MIN_S, rest

log = logging.getLogger(__name__)

SIZES_S: Final = 15.0
"""How long a start waits for the sizes of the gangs that it finds: jobs of the journal are found again by the groups of
their pods, and these depend on them."""


async def read_size(client: Client, source: Source) -> Size | None:
    """How many pods a gang has, tried until there is an answer; None = it cannot be read."""
    pause_s = PAUSE_MIN_S
    while True:
        try:
            return gang_size(await client.get(source.path))
        except UnreachableError:
            pause_s = await rest(pause_s)
        except (ApiError, UnreadableError) as error:
            log.warning("%s %s/%s: %s", source.kind, source.namespace, source.name, error)
            return None
