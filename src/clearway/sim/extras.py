"""The one place that loads the optional libraries of the extra `twin`, when they are first needed.

Loaded late so that a run without plots or bounds neither needs them nor waits for them.
"""

import importlib
from typing import Any

from clearway.model.errors import MissingExtraError


def load_extra(module: str) -> Any:
    """The imported `module`, for example "matplotlib.figure". Raises MissingExtraError when it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f'this needs the library {package}, which is not installed: pip install "clearway[twin]"'
        ) from error
