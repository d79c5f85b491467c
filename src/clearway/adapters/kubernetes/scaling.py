"""Jobs of users that say they are elastic: how many pods theirs make, and whether they make any."""

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError
from clearway.adapters.kubernetes.pace import PAUSE_MIN_S, rest
from clearway.adapters.kubernetes.runs import Scale


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
