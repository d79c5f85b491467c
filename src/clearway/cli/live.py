"""The commands of a running control plane, in the order in which help lists them."""

from collections.abc import Callable
from typing import Any, Final

import typer

from clearway.cli import (
    live_admin,
    live_cluster,
    live_jobs,
    live_serve,
    live_slurm,
    live_snapshot,
    live_submit,
    live_top,
    live_up,
)

OPERATE: Final = "Run a control plane"
JOBS: Final = "Jobs"
CLUSTER: Final = "Cluster"

COMMANDS: Final[tuple[tuple[str, str, Callable[..., Any], str], ...]] = (
    (OPERATE, "up", live_up.up, "Start a control plane on this machine, and run jobs; Ctrl-C stops it, jobs go on."),
    (OPERATE, "down", live_up.down, "Stop the control plane; jobs go on, unless --stop-jobs."),
    (JOBS, "submit", live_submit.submit, "Submit job files, #SBATCH scripts, or a command after `--`."),
    (JOBS, "queue", live_jobs.queue, "List jobs that wait or run."),
    (JOBS, "jobs", live_jobs.jobs, "List jobs, also those that have ended, the newest first."),
    (JOBS, "show", live_jobs.show, "Show everything about one job."),
    (JOBS, "why", live_jobs.why, "Say why a job waits, who is in its way, and what would help."),
    (JOBS, "logs", live_jobs.logs, "Print what a job wrote; -f follows it."),
    (JOBS, "report", live_jobs.report, "Say how a job fared, and what to change next time."),
    (JOBS, "wait", live_jobs.wait, "Wait until jobs have ended; exit code of the first that ended badly."),
    (JOBS, "cancel", live_jobs.cancel, "Cancel jobs, waiting or running."),
    (JOBS, "hold", live_jobs.hold, "Keep waiting jobs from starting."),
    (JOBS, "release", live_jobs.release, "Let held jobs start."),
    (JOBS, "requeue", live_jobs.requeue, "Have running jobs leave their devices and wait again."),
    (CLUSTER, "top", live_top.top, "Watch devices, running and waiting jobs."),
    (CLUSTER, "nodes", live_cluster.nodes, "List nodes and what their devices do."),
    (CLUSTER, "queues", live_cluster.queues, "List queues, what waits in them and what runs."),
    (CLUSTER, "tenants", live_cluster.tenants, "List tenants, what they hold and may hold."),
    (CLUSTER, "drain", live_cluster.drain, "Let nothing new start on a node."),
    (CLUSTER, "undrain", live_cluster.undrain, "Let a node be used again."),
    (CLUSTER, "snapshot", live_snapshot.snapshot, "Write the cluster and its jobs to a file for the twin."),
    (CLUSTER, "events", live_cluster.events, "Print what happens, as it happens."),
    (OPERATE, "serve", live_serve.serve, "Start a further API server beside a control plane, over Redis."),
    (OPERATE, "token", live_admin.token, "Print the token of the operator who started the control plane."),
    (OPERATE, "audit", live_admin.audit, "List who did what."),
)
"""(panel, name, function, help)."""


def register_live_commands(app: typer.Typer) -> None:
    """Add them to the root command."""
    for panel, name, function, text in COMMANDS:
        app.command(name, help=text, rich_help_panel=panel)(function)
    app.add_typer(live_admin.users_app, name="users", rich_help_panel=OPERATE)
    app.add_typer(live_admin.config_app, name="config", rich_help_panel=OPERATE)
    app.add_typer(live_admin.journal_app, name="journal", rich_help_panel=OPERATE)
    app.add_typer(live_slurm.slurm_app, name="slurm", rich_help_panel="Slurm")
    live_slurm.register_slurm_commands(app)
