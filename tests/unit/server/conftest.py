"""A server for each test, asked in the process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.fake_control import FakeControl
from support.served import Site, Web, asked, make_site

Ask = Callable[..., httpx.Response]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


@pytest.fixture
def control(site: Site) -> FakeControl:
    return site.control


@pytest.fixture
def web(site: Site) -> Iterator[Web]:
    with asked(site) as client:
        yield client


@pytest.fixture
def ask(site: Site, web: Web) -> Ask:
    """`ask("ada", "GET", "/api/v1/jobs", params=...)`"""

    def ask(user: str, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**site.bearer(user), **options.pop("headers", {})}
        return web.request(method, path, headers=headers, **options)

    return ask
