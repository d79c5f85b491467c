"""Draws the pictures of docs/pictures: `make pictures`.

The overview comes from runs of the twin on a generated workload, the picture of `clearway top` from the demonstration
itself, at the moment when its urgent job has taken devices from another.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from clearway.bootstrap.comparison import make_comparison_request, run_comparison
from clearway.bootstrap.places import Places, read_running, read_secret
from clearway.bootstrap.simulation import SimulationRequest
from clearway.cli.live_top import fetch_scene, write_svg
from clearway.cli.session import make_session
from clearway.client import Client
from clearway.sim.report import ReportRun, write_overview_png

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
WORKLOAD: Final = "synthetic:philly-like?jobs=2000&load=0.9&devices=64"
CLUSTER: Final = "8x8"
POLL_S: Final = 0.2
POLICIES: Final = "fifo,easy,srpt,clearway"


def draw_overview(path: Path) -> None:
    """One workload under the policies that a newcomer asks for first; README quotes the same command."""
    base = SimulationRequest(trace=WORKLOAD, policy="", cluster=CLUSTER)
    comparison = run_comparison(make_comparison_request(base, policies=POLICIES, seeds=1, processes=None))
    write_overview_png(path, [ReportRun(run.result, run.metrics, run.bounds) for run in comparison.first_runs])


def draw_top(path: Path) -> None:
    """What `clearway top` shows of the demonstration while its urgent job runs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "clearway.cli", "up", "--demo", "--exit-when-done", "--listen", "0"]
        demonstration = subprocess.Popen([*command, "--state-dir", folder], stdout=subprocess.DEVNULL)  # noqa: S603
        try:
            while demonstration.poll() is None:
                time.sleep(POLL_S)
                running = read_running(Places(Path(folder)))
                if running is None:
                    continue
                with Client(running.url, read_secret(Places(Path(folder)).token)) as client:
                    scene = fetch_scene(client)
                if any(job.name == "urgent" for job in scene.running) and any(job.preemptions for job in scene.waiting):
                    write_svg(make_session("en"), scene, path)
                    return
            raise SystemExit("the demonstration ended before its urgent job had preempted another")
        finally:
            demonstration.terminate()
            demonstration.wait()


def main() -> None:
    """Draw every picture."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    draw_top(PICTURES / "top.svg")
    draw_overview(PICTURES / "overview.png")


if __name__ == "__main__":
    main()
