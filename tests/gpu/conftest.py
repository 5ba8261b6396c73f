"""Where the kernels for GPUs run: on one, or by Triton's interpreter (TRITON_INTERPRET=1, slow and exact)."""

import importlib.util
import os

import pytest
import torch


@pytest.fixture
def device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if os.environ.get("TRITON_INTERPRET") == "1":
        # Who asks for it is not told that all is well because it is not there.
        assert importlib.util.find_spec("triton"), "TRITON_INTERPRET=1, but Triton is not installed"
        return "cpu"
    pytest.skip("needs an NVIDIA GPU, or Triton and TRITON_INTERPRET=1")


@pytest.fixture(autouse=True)
def _in_float32():
    """What torch computes in TF32 by itself is no oracle."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture
def gpu() -> str:
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    return "cuda"
