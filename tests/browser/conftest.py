"""A browser in front of the whole application."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from service.app import create_app
from service.context import Context
from service.db.session import Database
from service.settings import Settings

BUILDS = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))
"""The first that is here: a shell without a desktop's browser around it takes a third less time."""
CHROMIUM = next(filter(Path.exists, BUILDS), None)
SCHEMES = pytest.mark.parametrize(
    # A dark page is laid out as the light one is.
    ("scheme", "widths"),
    [
        pytest.param("light", (360, 1280, 2560), id="light"),
        pytest.param("dark", (1280,), id="dark"),
    ],
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


# What comes on a busy machine comes late: five seconds are no verdict on a page.
expect.set_options(timeout=15_000)


class BelowPrefix:
    """ASGI: the application as it stands behind a proxy that gives it one prefix of all paths."""

    def __init__(self, app: FastAPI, prefix: str) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if not scope["path"].startswith(f"{self._prefix}/"):
                await PlainTextResponse("not ours", 404)(scope, receive, send)
                return
            scope = {**scope, "root_path": self._prefix}
        await self._app(scope, receive, send)


class Service:
    """The application on a port, to be stopped and started again."""

    def __init__(self, database: Database, home: Path, *, prefix: str = "") -> None:
        self._database, self._home, self._prefix = database, home, prefix
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.app: FastAPI
        self._server: uvicorn.Server
        self._task: asyncio.Task[None]

    @property
    def context(self) -> Context:
        return self.app.state.context

    async def start(self) -> None:
        self.app = create_app(Settings(home=self._home), self._database)
        shown = BelowPrefix(self.app, self._prefix) if self._prefix else self.app
        config = uvicorn.Config(shown, port=self.port, log_config=None, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._task = asyncio.create_task(self._server.serve())
        async with asyncio.timeout(20):
            while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self.context.hub.shut()
        self._server.should_exit = True
        await self._task


@pytest.fixture
async def service(database: Database, tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(database, tmp_path)
    await service.start()
    yield service
    await service.stop()


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(f"{BUILDS[0]} is missing: apt-get install {BUILDS[0].name}")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


class Tab:
    """Opens pages, and holds what went wrong on them."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser, self._url = browser, url
        self.complaints: list[str] = []

    @asynccontextmanager
    async def open(
        self, path: str, *, width: int = 1280, scheme: str = "light"
    ) -> AsyncIterator[Page]:
        context: BrowserContext = await self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            base_url=self._url,
        )
        page = await context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text)
                if message.type in ("error", "warning")
                else None
            ),
        )
        try:
            await page.goto(path)
            yield page
        finally:
            await context.close()


async def at_widths(page: Page, widths: Sequence[int]) -> AsyncIterator[int]:
    """Each width in turn, once the page is laid out in it: resizing a page is cheaper than opening it again."""
    for width in widths:
        await page.set_viewport_size({"width": width, "height": 900})
        # Charts are drawn anew in the frame after they have heard of it.
        await page.evaluate(
            "() => new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))"
        )
        yield width


async def point_at_the_first(page: Page, points: str) -> tuple[float, float]:
    """Move the mouse onto the first dot of a chart whose dots lead somewhere; where that is."""
    host = page.locator(points)
    await host.scroll_into_view_if_needed()
    dots = await host.locator("[data-marks]").first.get_attribute("d") or ""
    x, y = dots.split("M")[1].removesuffix("h0").split()
    box = await host.locator("svg").bounding_box()
    assert box is not None
    place = box["x"] + box["width"] * int(x) / 1000, box["y"] + box["height"] * int(y) / 1000
    await page.mouse.move(*place)
    return place


@pytest.fixture
def tab(browser: Browser, service: Service) -> Tab:
    return Tab(browser, service.url)
