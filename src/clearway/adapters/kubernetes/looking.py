"""Reads objects that say how many pods of theirs start together."""

import logging
from typing import Final

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError, UnreadableError
from clearway.adapters.kubernetes.gangs import NOTHING_SAID, Said, Size, Source, gang_size, said_by
from clearway.adapters.kubernetes.pace import PAUSE_MIN_S, rest

log = logging.getLogger(__name__)

SIZES_S: Final = 15.0
"""How long a start waits for the sizes of the gangs that it finds: jobs of the journal are found again by the groups of
their pods, and these depend on them."""


NOT_FOUND: Final = 404


async def read_size(client: Client, source: Source) -> tuple[Size | None, bool, Said]:
    """How many pods a gang has, tried until there is an answer (None = it cannot be read), whether the object that says
    it was deleted, and what else it says."""
    pause_s = PAUSE_MIN_S
    while True:
        try:
            data = await client.get(source.path)
            return gang_size(data), "deletionTimestamp" in data["metadata"], said_by(data)
        except UnreachableError:
            pause_s = await rest(pause_s)
        except (ApiError, UnreadableError) as error:
            log.warning("%s %s/%s: %s", source.kind, source.namespace, source.name, error)
            return None, isinstance(error, ApiError) and error.status == NOT_FOUND, NOTHING_SAID
