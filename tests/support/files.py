"""Small files for readers to read."""

import gzip
from pathlib import Path


def write_lines(path: Path, *lines: str) -> Path:
    """Write lines, each with its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_gzip(path: Path, *lines: str) -> Path:
    """Write lines, compressed."""
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path
