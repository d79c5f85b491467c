"""Parts of a keeper, for tests without processes."""

from clearway.adapters.local.keeper.messages import Launch, ReplicaLaunch


def make_launch(job: int = 5, generation: int = 1, **more: object) -> Launch:
    """One replica of `/bin/sh` on one device."""
    replica = ReplicaLaunch(rank=0, node="n0", environment={"RANK": "0"}, stdin="", stdout="/o", stderr="/o")
    values = {
        "replicas": (replica,),
        "world": 1,
        "devices": (("n0", 1),),
        "environment": {},
        "argv": ("/bin/sh", "{script}"),
        "script": "true\n",
        "workdir": "/",
        "job_dir": "/j",
    }
    return Launch(job=job, generation=generation, **{**values, **more})
