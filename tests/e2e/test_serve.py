"""Further API servers beside a control plane: rows of the storage, live state and events through a real Redis."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from redis import Redis

from clearway.bootstrap.places import read_running, read_secret
from clearway.client import Client
from clearway.client.errors import ApiError
from clearway.wire.api import SubmittedFile
from support.control_plane import MAIN, ControlPlane, wait_until
from support.servers import RedisServer, running

PREFIX = "east"


class ApiServer:
    """One `clearway serve` over a control plane's state directory."""

    def __init__(self, plane, config, name):
        self.log = plane.work / f"{name}.log"
        words = ["serve", "--listen", "127.0.0.1:0", "--config", str(config)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", MAIN, *words], env=plane.environment(), stdout=log, stderr=log
            )
        self.url = ""
        wait_until(self._is_ready, "an API server that is ready")
        self.token = read_secret(plane.places.token)
        self.heard = []
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def _is_ready(self):
        assert self.process.poll() is None, self.log.read_text()
        found = re.search(r"http://127\.0\.0\.1:\d+", self.log.read_text())
        self.url = found.group() if found else ""
        return bool(found)

    def client(self):
        return Client(self.url, self.token)

    def get(self, path):
        """(status, body) of a route; without a token where none is needed."""
        request = Request(f"{self.url}{path}", headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    def listen(self):
        self._listener.start()

    def _listen(self):
        with contextlib.suppress(ApiError), self.client() as client:
            for event in client.events(kinds=("job",)):
                if event.kind != "job":  # a gap
                    continue
                self.heard.append((event.data["id"], event.data["state"]))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()


@pytest.fixture
def redis():
    with running(RedisServer) as server:
        yield server


@pytest.mark.slow
def test_two_servers_show_one_control_plane_and_stay_readable_without_it(redis, tmp_path):
    plane = ControlPlane(tmp_path)
    config = plane.work / "clearway.yaml"
    config.write_text(f"redis_url: {redis.url}\nredis_prefix: {PREFIX}\n")
    with contextlib.ExitStack() as stack:
        stack.callback(plane.tidy)
        plane.start("--config", str(config))
        servers = [ApiServer(plane, config, name) for name in ("first", "second")]
        for server in servers:
            stack.callback(server.process.kill)
            server.listen()
            wait_until(lambda server=server: server.get("/api/v1/nodes")[0] == 200, "the view of the cluster")
            assert server.get("/ready") == (200, server.get("/ready")[1])
            assert server.get("/api/v1/jobs")[1]["jobs"] == []

        # What is submitted at one is seen, and heard of, at both.
        job = submit(servers[0], plane)
        for server in servers:
            wait_until(lambda server=server: (job, "COMPLETED") in server.heard, "the job's end, heard")
            assert next(state for number, state in server.heard if number == job) == "PENDING"
            assert server.get(f"/api/v1/jobs/{job}")[1]["state"] == "COMPLETED"
        assert not {*redis_keys(redis)} - {f"{PREFIX}:view", f"{PREFIX}:notices", f"{PREFIX}:job:{job}"}
        with servers[1].client() as client, pytest.raises(ApiError, match="ended"):
            client.why(job)

        # The control plane dies: lists work, what would change something is refused with the reason.
        pid = plane.process.pid
        os.kill(pid, signal.SIGKILL)
        plane.process.wait(60)
        for server in servers:
            assert server.get(f"/api/v1/jobs/{job}")[0] == 200
            assert server.get("/api/v1/nodes")[0] == 200
            with pytest.raises(ApiError, match="read-only: expected a control plane"):
                submit(server, plane)
            wait_until(lambda server=server: server.get("/ready")[0] == 503, "no readiness without a control plane")
            assert "read-only" in server.get("/ready")[1]["detail"]

        # It comes back, at another port; both go on, and hear of what it does.
        plane.start("--config", str(config))
        assert read_running(plane.places).pid != pid
        wait_until(lambda: servers[1].get("/ready")[0] == 200, "a control plane that is back")
        again = submit(servers[1], plane)
        for server in servers:
            wait_until(lambda server=server: (again, "COMPLETED") in server.heard, "an end after the restart, heard")
            server.stop()


def submit(server, plane):
    files = [SubmittedFile(job={"command": "true", "resources": {"gpus": 1}})]
    with server.client() as client:
        return client.submit(files, cwd=str(plane.work), environment={"PATH": "/usr/bin:/bin"}).jobs[0]


def redis_keys(server):
    with Redis.from_url(server.url) as client:
        return {key.decode() for key in client.keys("*")}


def test_serve_without_redis_says_what_is_missing(tmp_path):
    plane = ControlPlane(tmp_path)
    answer = plane.run("serve")
    assert answer.returncode == 2
    assert "redis_url" in answer.stderr
