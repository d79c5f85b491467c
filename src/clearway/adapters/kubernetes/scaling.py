"""What Jobs are asked of their pods: how many elastic ones make, whether they make any, and why they do not."""

import logging
from datetime import datetime
from typing import Final

from clearway.adapters.kubernetes.client import Client, Json
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError
from clearway.adapters.kubernetes.pace import PAUSE_MIN_S, rest
from clearway.adapters.kubernetes.runs import Inquire, Scale

log = logging.getLogger(__name__)

SLACK_MS: Final = 2_000
"""By which clocks differ, and the second to which an event says its time."""


async def scale_job(client: Client, scale: Scale) -> str:
    """The Job makes so many pods from now on, and those with higher numbers go; why it must not, "" = it does."""
    size = {"parallelism": scale.pods, "completions": scale.pods, "suspend": False}
    body = {"spec": {"suspend": True} if scale.is_parked else size}
    pause_s = PAUSE_MIN_S
    while True:
        try:
            await client.patch(scale.source.path, body)
            return ""
        except UnreachableError:
            pause_s = await rest(pause_s)
        except ApiError as error:
            return str(error)


async def unpark_job(client: Client, namespace: str, uid: str) -> None:
    """A Job that was told to let its pods go makes them again."""
    root = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    pause_s = PAUSE_MIN_S
    while True:
        try:
            jobs, _ = await client.list_all(root)
            for job in jobs:
                if job["metadata"]["uid"] == uid and job["spec"].get("suspend"):
                    await client.patch(f"{root}/{job['metadata']['name']}", {"spec": {"suspend": False}})
            return
        except UnreachableError:
            pause_s = await rest(pause_s)


async def find_refusal(client: Client, about: Inquire) -> str:
    """Why the Job could not make a pod lately, as the API server said; "" = nothing is said of it."""
    chosen = f"involvedObject.kind=Job,involvedObject.name={about.name},reason=FailedCreate"
    try:
        found = await client.get(f"/api/v1/namespaces/{about.namespace}/events", fieldSelector=chosen)
    except (ApiError, UnreachableError) as error:
        log.info("job %d: %s", about.job, error)
        return ""
    events = [(_time_ms(one), str(one.get("message") or "")) for one in found.get("items") or ()]
    at_ms, message = max(events, default=(0, ""))
    return message.removeprefix("Error creating: ") if at_ms >= about.since_ms - SLACK_MS else ""


def _time_ms(event: Json) -> int:
    """When it last happened; 0 = it does not say."""
    text = event.get("lastTimestamp") or (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return 0
