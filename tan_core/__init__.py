"""The library under TAN Search: mathematics, specs, planning and the DP-SGD engine.

Importing ``tan_core`` loads no torch: the engine, the models and the data live in packages of their
own (``tan_core.engine``, ``tan_core.models``, ``tan_core.data``).
"""

from tan_core.errors import ParameterError, TanError
from tan_core.mechanism import Mechanism, NeighboringRelation, Sampling

__all__ = ["Mechanism", "NeighboringRelation", "ParameterError", "Sampling", "TanError"]
