"""``GET /webhooks/deliveries``."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from sqlalchemy import select

from service.access.guard import needs
from service.auth.scopes import Scope
from service.context import ContextDep
from service.db.tables import WebhookDelivery
from service.problems import described
from service.webhooks.schemas import DeliveryList, DeliveryView

router = APIRouter(
    prefix="/webhooks",
    tags=["webhooks"],
    dependencies=[needs(Scope.AUDIT)],
    responses=described(422),
)


@router.get("/deliveries")
async def list_deliveries(
    context: ContextDep,
    state: Annotated[
        Literal["pending", "delivered", "given_up"] | None, Query(description="Only these")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DeliveryList:
    """Messages to the operator's addresses, the newest first: what was sent, and what it met."""
    query = select(WebhookDelivery).order_by(WebhookDelivery.created_at.desc(), WebhookDelivery.id)
    if state is not None:
        query = query.where(WebhookDelivery.state == state)
    async with context.database.session() as session:
        found = await session.scalars(query.limit(limit))
        return DeliveryList(items=[DeliveryView.model_validate(each) for each in found])
