"""A browser, and a service with streams of several kinds, for each file of tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.browser import Tab, Visit, new_context, running_browser
from harness.running_service import RunningService
from harness.web import WEB

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def service(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with the streams `gauge` (six features, keys), `words` (counts) and `empty`."""
    with dashboard(tmp_path_factory) as running:
        fill(running)
        yield running


@contextmanager
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that runs, without any stream."""
    running = RunningService(tmp_path_factory.mktemp("dashboard") / "data")
    running.start()
    try:
        yield running
    finally:
        running.kill()


def fill(running: RunningService) -> None:
    rng = np.random.default_rng(1)
    put(running, "gauge", n_features=6, half_life=20_000)
    put(running, "words", n_features=30, family="multinomial")
    put(running, "empty", n_features=3)
    centres = rng.normal(size=(7, 6)) * 6
    for batch in range(4):
        x = centres[rng.integers(7 if batch > 1 else 4, size=500)] + rng.normal(size=(500, 6))
        keys = [f"host-{i}/{batch}" if i % 5 == 0 else None for i in range(500)]
        learn(running, "gauge", {"points": x.tolist(), "keys": keys, "payloads": [k and {"line": k} for k in keys]})
    topics = rng.dirichlet(np.full(30, 0.1), size=4)
    counts = np.array([rng.multinomial(30, topics[rng.integers(4)]) for _ in range(1200)])
    learn(running, "words", {"points": counts.tolist()})


def put(running: RunningService, name: str, **settings: Any) -> None:
    """Make a stream, which is never refined by itself."""
    assert WEB.put(f"{running.url}/streams/{name}", json={"refinement": None, **settings}).status_code == 201


def learn(running: RunningService, name: str, body: dict[str, Any]) -> None:
    """Store points and wait until they are learnt. Kernels may have to be compiled first, on a busy machine."""
    url = f"{running.url}/streams/{name}"
    reply = WEB.post(f"{url}/ingest", json=body, timeout=60)
    assert reply.status_code == 202, reply.text
    asked = {"min_offset": reply.json()["log_offset"], "timeout": 20, "limit": 1}
    for _ in range(9):
        if WEB.get(f"{url}/components", params=asked, timeout=60).status_code == 200:
            return
    raise TimeoutError(f"stream {name} has not learnt its points within three minutes: {running.tail()}")


@pytest.fixture(scope="module")
def context(browser: Any) -> Any:
    return new_context(browser)


@pytest.fixture(scope="module")
def tab(context: Any) -> Tab:
    made = Tab(context)
    made.share()
    return made


@pytest.fixture
def visit(browser: Any, context: Any, tab: Tab, request: pytest.FixtureRequest) -> Iterator[Callable[..., Visit]]:
    """Make visits, each of which must end without a complaint and without a request to another host.

    They are in one page, each in a document of its own. With `walk`, a visit goes on in the document that the last such
    visit has left, as a person goes from view to view: five times quicker, for tests that leave nothing open or changed
    in a document. With `own`, it has a page of its own. With further settings, it shares nothing.
    """
    with ExitStack() as ends:

        def start(walk: bool = False, own: bool = False, at: str | None = None, **settings: Any) -> Visit:
            url = request.getfixturevalue("service").url if at is None else at
            used = tab
            if settings:
                used = Tab(ends.enter_context(closing(new_context(browser, **settings))))
            elif own:
                used = Tab(context)
                ends.callback(used.page.close)
            else:
                assert tab.visit is None, "a visit is in the page already: visit(own=True)"
                if not walk:
                    tab.empty()
                    ends.callback(tab.empty)
            made = Visit(used, url)
            ends.callback(made.close)
            return made

        yield start
