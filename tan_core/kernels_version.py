"""Which C kernels this code calls; here, where nothing needs torch."""

from typing import Final

KERNELS_VERSION: Final = 10
"""As ``kernels_version()`` of the compiled library says it: raised whenever what it exports changes, or what a bound rests on."""
