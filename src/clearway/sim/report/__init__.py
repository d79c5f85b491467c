"""Reports for people: one HTML file with plots that opens without a network, and one picture for an overview.

Needs the extra `twin` (matplotlib, jinja2); without it every function raises MissingExtraError.
"""

from clearway.sim.report.overview import write_overview_png
from clearway.sim.report.page import write_report
from clearway.sim.report.runs import ReportRun

__all__ = ["ReportRun", "write_overview_png", "write_report"]
