"""What long-running processes say, and where."""

import logging


def start_logging(level: str) -> None:
    """To standard error. What libraries say of their daily work is of no interest here."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for library in ("alembic", "uvicorn", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)
