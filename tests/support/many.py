"""More of what there is one of: rows that the service wrote, under other names."""

from collections.abc import Sequence

import psycopg

from tests.fixtures.postgres import DatabaseUrls

_DATASETS = """
INSERT INTO dataset SELECT copy.* FROM dataset, unnest(%(names)s::text[]) AS called,
    jsonb_populate_record(dataset, jsonb_build_object(
        'name', called, 'content_sha256', called, 'scope_id', 'dataset:' || called)) AS copy
WHERE dataset.name = 'digits'
"""
_SCOPES = """
SELECT ledger_open_scope('dataset:' || called, called, unit, neighboring_relation, epsilon, delta, admission, 'test')
  FROM ledger_scope, unnest(%(names)s::text[]) AS called WHERE scope_id = 'dataset:digits'
"""


def copy_digits(urls: DatabaseUrls, names: Sequence[str]) -> None:
    """Private datasets of these names, each as the digits and with a budget of its own."""
    with psycopg.connect(urls.owner) as connection:
        for statement in (_DATASETS, _SCOPES):
            connection.execute(statement.encode(), {"names": list(names)})
