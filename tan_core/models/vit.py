"""A small vision transformer, of layers whose per-example gradients are known."""

from torch import Tensor, nn
from torch.nn import functional

from tan_core.models.position_embedding import PositionEmbedding
from tan_core.models.shapes import image_shape
from tan_core.spec.models import VitModel

MLP_RATIO = 4


# Shape legend: V = examples or their views, T = patches, D = width, H = heads, F = D / H.
class Attention(nn.Module):
    """Self-attention of several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x_VTD: Tensor) -> Tensor:
        """[V, T, D]."""
        qkv_VT3HF = self.qkv(x_VTD).unflatten(2, (3, self.heads, -1))
        q_VHTF, k_VHTF, v_VHTF = (part.transpose(1, 2) for part in qkv_VT3HF.unbind(2))
        seen_VHTF = functional.scaled_dot_product_attention(q_VHTF, k_VHTF, v_VHTF)
        return self.projection(seen_VHTF.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then two linear layers per token, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, MLP_RATIO * width), nn.GELU(), nn.Linear(MLP_RATIO * width, width)
        )

    def forward(self, x_VTD: Tensor) -> Tensor:
        """[V, T, D]."""
        x_VTD = x_VTD + self.attention(self.norm1(x_VTD))
        return x_VTD + self.mlp(self.norm2(x_VTD))


class Tokens(nn.Module):
    """Images as sequences of patches, the edge filled up with zeros."""

    def __init__(self, image: tuple[int, int, int], *, patch_size: int, width: int) -> None:
        super().__init__()
        channels, *sides = image
        rows, columns = (-(-side // patch_size) for side in sides)
        self.missing = tuple(-side % patch_size for side in reversed(sides))
        self.patches = nn.Conv2d(channels, width, kernel_size=patch_size, stride=patch_size)
        self.positions = PositionEmbedding(rows * columns, width)

    def forward(self, images: Tensor) -> Tensor:
        """[V, C, height, width] -> [V, T, D]."""
        right, bottom = self.missing
        if right or bottom:
            images = functional.pad(images, (0, right, 0, bottom))
        return self.positions(self.patches(images).flatten(2).transpose(1, 2))


class Mean(nn.Module):
    """The mean token."""

    def forward(self, x_VTD: Tensor) -> Tensor:
        """[V, D]."""
        return x_VTD.mean(1)


def build(spec: VitModel, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """ViT-Ti by default: depth 12, width 192, 3 heads; the mean of the tokens in place of a class token.

    References:
        Dosovitskiy et al. (2021), arXiv:2010.11929; Touvron et al. (2021), arXiv:2012.12877, for this
        size; Beyer et al. (2022), arXiv:2205.01580, for the mean.
    """
    image = image_shape(spec, shape)
    return nn.Sequential(
        Tokens(image, patch_size=spec.patch_size, width=spec.width),
        *(Block(spec.width, spec.heads) for _ in range(spec.depth)),
        Mean(),
        nn.LayerNorm(spec.width),
        nn.Linear(spec.width, num_classes),
    )
