"""Datasets: what is in them, and their splits as arrays. No torch: the control plane reads this room.

:func:`inspect` looks at data that is about to be registered, :func:`load_split` reads one split of a
registered dataset, :func:`load_features` what an extractor makes of it, :func:`verify` makes sure that
the bytes are still those that were registered.
What one guarantee is for is a record, or a user: whoever a column names as the owner of records.
"""

from tan_core.data.dataset import DatasetFacts, Split, inspect, load_features, load_split, verify

__all__ = ["DatasetFacts", "Split", "inspect", "load_features", "load_split", "verify"]
