"""The metrics by key, and what people call them."""

from clearway.cli.messages import Language
from clearway.cli.session import Session
from clearway.sim.metric_definitions import METRICS, MetricDefinition

DEFINITIONS = {definition.key: definition for definition in METRICS}


def label_of(session: Session, definition: MetricDefinition) -> str:
    """The name of a metric for people."""
    return definition.label_zh if session.language is Language.CHINESE else definition.label
