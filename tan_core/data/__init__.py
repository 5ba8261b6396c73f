"""Datasets: what is in them, and their splits as arrays. No torch: the control plane reads this room.

:func:`inspect` looks at data that is about to be registered, :func:`load_split` reads one split of a
registered dataset, :func:`load_features` what an extractor makes of it, :func:`verify` makes sure that
the bytes are still those that were registered, :func:`class_names` says what labels mean, :func:`read_features` reads other records
of a table as a model that was trained on it does. A :class:`Storage` says which addresses data may come from,
and where this machine keeps what does not fit into memory.
What one guarantee is for is a record, or a user: whoever a column names as the owner of records.
"""

from tan_core.data.cache import forget_unread
from tan_core.data.columns import read_features
from tan_core.data.facts import DatasetFacts, inspect
from tan_core.data.load import Extract, Progressed, Split, has_features, load_features, load_split
from tan_core.data.records import Records
from tan_core.data.registered import class_names, verify
from tan_core.data.storage import Storage
from tan_core.data.store import Store

__all__ = [
    "DatasetFacts",
    "Extract",
    "Progressed",
    "Records",
    "Split",
    "Storage",
    "Store",
    "class_names",
    "forget_unread",
    "has_features",
    "inspect",
    "load_features",
    "load_split",
    "read_features",
    "verify",
]
