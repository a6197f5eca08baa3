"""`pezoo show`: what one trained run has learned, as one page of pictures."""
