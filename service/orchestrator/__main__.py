"""``python -m service.orchestrator``: the loop around the reconciler."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from urllib.parse import urlsplit

from service.auth.secrets import server_secret
from service.db.session import Database
from service.hosts import is_loopback, is_only_here, url_of
from service.orchestrator import claims
from service.orchestrator.hearing import Ear, Hearing
from service.orchestrator.log_keeper import LogKeeper
from service.orchestrator.pulse import Pulse
from service.orchestrator.ray_jobs import RayJobs
from service.orchestrator.reconcile import Reconciler
from service.orchestrator.ticks import LEASE, Ticks
from service.publication.published import Published
from service.retention import Retention
from service.settings import Settings, SettingsError, read_settings, unread_settings
from service.webhooks.sender import WebhookSender
from service.webhooks.signature import webhook_secret
from tan_core import log_records

log = logging.getLogger("service.orchestrator")


async def run(settings: Settings) -> None:
    """Reconcile until told to stop."""
    if settings.database_url is None or settings.ray_address is None:
        raise SystemExit("orchestrator: TAN_DATABASE_URL and TAN_RAY_ADDRESS must be set")
    owner = f"{socket.gethostname()}-{os.getpid()}"
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    database = Database(settings.database_url.get_secret_value(), pool_size=settings.database_pool)
    launcher = RayJobs(
        settings.ray_address, token_path=settings.ray_token_path, python=settings.worker_python
    )
    api_url = settings.worker_url or url_of(settings.host, settings.port)
    _warn_if_only_here(api_url, settings.ray_address)
    hearing = Hearing(api_url)
    ear = Ear(database, hearing)
    secret = server_secret(settings.home_path)
    reconciler = Reconciler(
        settings=settings,
        database=database,
        launcher=launcher,
        worker_url=api_url,
        secret=secret,
        owner=owner,
        lease=LEASE,
    )
    ticks = Ticks(
        database=database,
        reconciler=reconciler,
        ear=ear,
        published=Published(settings.home_path),
        owner=owner,
    )
    pulse = Pulse(database, owner, settings.pulse_file)
    retention = Retention(database, settings)
    # Beside the ticks: neither a long log nor a slow receiver holds up a study.
    beside = [
        asyncio.create_task(LogKeeper(database, launcher, secret).run(stop)),
        asyncio.create_task(ear.run(stop)),
    ]
    # Where there is no address any more, what was to go to one is still given up.
    key = b""
    if settings.webhook_urls:
        key = webhook_secret(settings.webhook_secret_path or settings.home_path / "webhook_secret")
    sender = WebhookSender(database, settings.webhook_urls, key)
    beside.append(asyncio.create_task(sender.run(stop)))
    log.info("orchestrator %s is up", owner)
    try:
        while not stop.is_set():
            with pulse.timed():
                await ticks.take(stop)
            await pulse.beat()
            await retention.sweep()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), settings.tick_seconds)
        async with database.session() as session:
            await claims.release_all(session, owner=owner)
    finally:
        stop.set()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await hearing.close()
        await launcher.close()
        await database.close()


def _warn_if_only_here(api_url: str, ray_address: str) -> None:
    ray_host = urlsplit(ray_address).hostname or ""
    if is_only_here(urlsplit(api_url).hostname or "") and not is_loopback(ray_host):
        log.warning(
            "drivers on %s are told to reach the API at %s, which means their own machine there: set "
            "TAN_WORKER_URL to an address of the API that they can reach",
            ray_host,
            api_url,
        )


def main() -> int:
    """Reconcile until SIGINT or SIGTERM."""
    try:
        settings = read_settings()
    except SettingsError as error:
        log.error("%s", error)
        return 2
    log_records.configure(settings.log_format)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    for told in unread_settings():
        log.warning("%s", told)
    asyncio.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
