"""The characteristic function of a cursor's position, token by token."""

from pezoo.kernels.spectral.scan import spectral_scan

__all__ = ["spectral_scan"]
