"""``/metrics``."""

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import PlainTextResponse, Response

from service.access.guard import needs
from service.auth.scopes import Scope
from service.metrics.latency import RequestLatency
from service.metrics.service import Metrics

router = APIRouter(tags=["health"])


def install(app: FastAPI) -> Metrics:
    """Time the requests of this application, and keep what ``/metrics`` tells of it."""
    metrics = Metrics(app.state.context)
    app.state.metrics = metrics
    app.add_middleware(RequestLatency, histogram=metrics.latency)
    return metrics


@router.get("/metrics", dependencies=[needs(Scope.READ)], response_class=PlainTextResponse)
async def get_metrics(request: Request) -> Response:
    """What an operator watches, in the Prometheus text format: docs/operations.md has the list."""
    metrics: Metrics = request.app.state.metrics
    return Response(await metrics.exposition(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
