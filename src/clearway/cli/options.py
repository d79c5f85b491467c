"""Options that several commands share, so that one name means one thing everywhere."""

from pathlib import Path
from typing import Annotated

import typer

TraceArgument = Annotated[
    str,
    typer.Argument(metavar="TRACE", help="Trace file (may be gzipped), model file, or synthetic:SPEC."),
]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="Format of the trace; recognised where that is certain.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="SPEC",
        help="1250x8, 64x8:V100,32x4:A100, a YAML file or a node inventory; else the trace's own cluster.",
    ),
]
SiteOption = Annotated[
    Path | None, typer.Option("--site", metavar="FILE", help="YAML file with queues and tenants of the site.")
]
FaultsOption = Annotated[
    str,
    typer.Option("--faults", metavar="none|default|FILE", help="Node and device failures: none, drawn, or a log."),
]
LimitOption = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Read the first N jobs only.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of all that is drawn.")]
JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE|-", help="Write the result as JSON; - writes it, alone, to standard output."),
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a report with plots that opens without a network.")
]
StateDirOption = Annotated[
    Path | None,
    typer.Option("--state-dir", metavar="DIR", help="Folder of the control plane; else CLEARWAY_STATE_DIR, or XDG's."),
]
