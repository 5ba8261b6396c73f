"""What a model says when it cannot read the inputs."""

from tan_core.errors import ParameterError
from tan_core.spec.models import ModelSpec


def image_shape(spec: ModelSpec, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(C, H, W) when the inputs are images with sides of at least the model's smallest."""
    if len(shape) != 3:
        raise ParameterError(
            f"model {spec.name} reads images of shape [C, H, W], the dataset has {list(shape)}; "
            "linear and mlp read any shape",
            field="model.name",
        )
    channels, height, width = shape
    smallest = spec.smallest_side or 1
    if min(height, width) < smallest:
        raise ParameterError(
            f"model {spec.name} reads images of at least {smallest}x{smallest} pixels, "
            f"the dataset has {height}x{width}",
            field="model.name",
        )
    return channels, height, width
