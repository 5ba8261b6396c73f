"""Datasets, their budgets and ledgers, and the keys that statements are signed with."""

from typing import Any

from service.client.connection import SLOW_SECONDS, Body, Connection, part
from service.datasets.schemas import (
    ApprovalRequest,
    DatasetList,
    DatasetRegistration,
    DatasetView,
)
from service.ledger.schemas import (
    Account,
    Burndown,
    CapList,
    CapRequest,
    CapSet,
    ChainReport,
    EvaluationList,
    Head,
    OutsideRelease,
    OutsideReleaseRequest,
    Repricing,
    RepricingRequest,
    RestoredBackupRequest,
)
from service.publication.schemas import KeyList, PublicKey


class Datasets(Connection):
    """The operations below ``/datasets`` and ``/keys``."""

    def register_dataset(
        self,
        registration: DatasetRegistration | Body,
        *,
        idempotency_key: str | None = None,
        dry_run: bool = False,
    ) -> DatasetView:
        """The registered dataset; of a dry run what would be registered, of which nothing is kept."""
        headers = {"Idempotency-Key": idempotency_key}
        return self._ask(
            DatasetView,
            "POST",
            "/datasets",
            body=registration,
            query={"dry_run": "true"} if dry_run else None,
            headers=headers,
            timeout=SLOW_SECONDS,
        )

    def list_datasets(self) -> DatasetList:
        """Every registered dataset."""
        return self._ask(DatasetList, "GET", "/datasets")

    def get_dataset(self, name: str) -> DatasetView:
        """One registered dataset."""
        return self._ask(DatasetView, "GET", _dataset(name))

    def set_approval(self, name: str, request: ApprovalRequest | Body) -> DatasetView:
        """Say whether a person has to approve every private run on the dataset."""
        return self._ask(DatasetView, "PUT", f"{_dataset(name)}/approval", body=request)

    def get_ledger(
        self, name: str, *, entries: int | None = None, until: int | None = None
    ) -> Account:
        """The dataset's budget, where it went, and the newest entries of its journal, or those up to one."""
        query = {"entries": entries, "until": until}
        return self._ask(Account, "GET", f"{_dataset(name)}/ledger", query=query)

    def verify_ledger(self, name: str) -> ChainReport:
        """Whether the dataset's journal is whole."""
        return self._ask(ChainReport, "GET", f"{_dataset(name)}/ledger/verify")

    def get_burndown(self, name: str) -> Burndown:
        """How the dataset's budget was spent over time."""
        return self._ask(Burndown, "GET", f"{_dataset(name)}/ledger/burndown")

    def list_evaluations(self, name: str) -> EvaluationList:
        """What accountants made of the dataset's ledger."""
        return self._ask(EvaluationList, "GET", f"{_dataset(name)}/ledger/evaluations")

    def reprice_ledger(self, name: str, request: RepricingRequest | Body) -> Repricing:
        """What the accountants of today make of the past."""
        path = f"{_dataset(name)}/ledger/evaluations"
        return self._ask(Repricing, "POST", path, body=request, timeout=SLOW_SECONDS)

    def charge_release(
        self,
        name: str,
        request: OutsideReleaseRequest | Body,
        *,
        idempotency_key: str | None = None,
        dry_run: bool = False,
    ) -> OutsideRelease:
        """A release outside of the service, charged before it is made; of a dry run what it would cost."""
        return self._ask(
            OutsideRelease,
            "POST",
            f"{_dataset(name)}/ledger/releases",
            body=request,
            query={"dry_run": "true"} if dry_run else None,
            headers={"Idempotency-Key": idempotency_key},
            timeout=SLOW_SECONDS,
        )

    def list_caps(self, name: str) -> CapList:
        """The limits of tenants within the dataset's budget."""
        return self._ask(CapList, "GET", f"{_dataset(name)}/caps")

    def set_cap(self, name: str, tenant: str, cap: CapRequest | Body) -> CapSet:
        """Limit a tenant within the dataset's budget."""
        return self._ask(CapSet, "PUT", f"{_dataset(name)}/caps/{part(tenant)}", body=cap)

    def export_ledger(self, name: str) -> dict[str, Any]:
        """The whole ledger, signed."""
        return self._document("GET", f"{_dataset(name)}/ledger/export")

    def accept_restored_backup(self, name: str, request: RestoredBackupRequest | Body) -> Head:
        """Go on with a ledger whose database was restored from an older backup."""
        path = f"{_dataset(name)}/ledger/restored-backup"
        return self._ask(Head, "POST", path, body=request)

    def list_keys(self) -> KeyList:
        """The public keys of the service."""
        return self._ask(KeyList, "GET", "/keys")

    def rotate_key(self) -> PublicKey:
        """The fresh key that signs from now on."""
        return self._ask(PublicKey, "POST", "/keys/rotate")


def _dataset(name: str) -> str:
    return f"/datasets/{part(name)}"
