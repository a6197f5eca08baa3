"""The histogram filter of PRISM, and its sum of sinusoids without all histograms in memory."""

from pezoo.kernels.histogram.reference import Copy, steps_of
from pezoo.kernels.histogram.scan import histogram_scan, histogram_stream

__all__ = ["Copy", "histogram_scan", "histogram_stream", "steps_of"]
