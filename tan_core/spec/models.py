"""The models a study may name, and their options. Data only: no torch here.

``tan_core.models`` builds each of these; a test holds the two lists together.
"""

from typing import Annotated, Literal

from pydantic import Field

from tan_core.spec.base import Frozen


class LinearModel(Frozen):
    """Multinomial logistic regression on the flattened input."""

    name: Literal["linear"] = "linear"


class MlpModel(Frozen):
    """Fully connected network."""

    name: Literal["mlp"] = "mlp"
    hidden: Annotated[
        list[Annotated[int, Field(ge=1, le=65536)]], Field(min_length=1, max_length=8)
    ] = Field(default=[64])
    activation: Literal["tanh", "relu"] = "tanh"


class TanhCnnModel(Frozen):
    """Two tanh convolutions and two linear layers (Papernot et al. 2021)."""

    name: Literal["tanh-cnn"] = "tanh-cnn"
    width: Annotated[int, Field(ge=1, le=1024)] = 16
    hidden: Annotated[int, Field(ge=1, le=65536)] = 32


class WideResNetModel(Frozen):
    """WRN-16-4 with GroupNorm, ReLU before the norm (Sander et al. 2023, 4.4)."""

    name: Literal["wrn-16-4"] = "wrn-16-4"
    groups: Literal[1, 2, 4, 8, 16] = 16
    """GroupNorm groups; they divide every width of the network."""


ModelSpec = Annotated[
    LinearModel | MlpModel | TanhCnnModel | WideResNetModel, Field(discriminator="name")
]
MODEL_TYPES: dict[str, type[Frozen]] = {
    "linear": LinearModel,
    "mlp": MlpModel,
    "tanh-cnn": TanhCnnModel,
    "wrn-16-4": WideResNetModel,
}
