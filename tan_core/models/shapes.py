"""What a model says when it cannot read the inputs."""

from tan_core.errors import ParameterError


def image_shape(name: str, shape: tuple[int, ...], *, smallest: int) -> tuple[int, int, int]:
    """(C, H, W) when the inputs are images with sides of at least ``smallest`` pixels."""
    if len(shape) != 3:
        raise ParameterError(
            f"model {name} reads images of shape [C, H, W], the dataset has {list(shape)}; "
            "linear and mlp read any shape",
            field="model.name",
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        raise ParameterError(
            f"model {name} reads images of at least {smallest}x{smallest} pixels, "
            f"the dataset has {height}x{width}",
            field="model.name",
        )
    return channels, height, width
