"""A front around a fake of the speech server, and openai's own client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")
pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
openai = pytest.importorskip("openai", reason="needs the environment of scripts/environment.py --test")

from fake_upstream import FakeUpstream  # noqa: E402
from front_server import RunningFront, running_front  # noqa: E402

if TYPE_CHECKING:
    from chromium import Visit

    StartFront = Callable[..., RunningFront]
    OpenClient = Callable[..., openai.OpenAI]
    OpenPage = Callable[..., Visit]


@pytest.fixture
def upstream() -> FakeUpstream:
    return FakeUpstream()


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start_front(upstream: FakeUpstream, resources: ExitStack) -> StartFront:
    """``start_front(key=value)`` starts a front with these settings of its section."""

    def start(**settings: object) -> RunningFront:
        starting: AbstractContextManager[RunningFront] = running_front(upstream, **settings)
        return resources.enter_context(starting)

    return start


@pytest.fixture
def front(start_front: StartFront) -> RunningFront:
    return start_front()


@pytest.fixture
def open_client(resources: ExitStack) -> OpenClient:
    """``open_client(front, key)`` is openai's client, which doesn't try again."""

    def open_client(front: RunningFront, key: str = "none") -> openai.OpenAI:
        client = openai.OpenAI(base_url=f"{front.url}/v1", api_key=key, max_retries=0)
        return resources.enter_context(client)

    return open_client


@pytest.fixture
def client(front: RunningFront, open_client: OpenClient) -> openai.OpenAI:
    return open_client(front)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless browser; a test that wants one is skipped where there is none."""
    from chromium import running_chromium

    with running_chromium() as browser:
        yield browser


@pytest.fixture
def visit(chromium: Any, front: RunningFront) -> Iterator[OpenPage]:
    """``visit(url)`` opens the front's page in a tab of its own; nothing may go wrong in any of them."""
    from chromium import Visit

    opened: list[Visit] = []
    with chromium.new_context(viewport={"width": 1000, "height": 900}) as context:
        context.grant_permissions(["microphone", "clipboard-read", "clipboard-write"])

        def visit(url: str = front.url) -> Visit:
            opened.append(Visit(context, url))
            return opened[-1]

        yield visit
        assert [visit.problems for visit in opened] == [[]] * len(opened)


@pytest.fixture
def page(visit: OpenPage) -> Visit:
    return visit()
