"""`pezoo show`: what one trained run has learned, as one page of pictures.

watch.py     a forward pass, watched from inside
examples.py  the sequences that it is watched on
figures.py   pictures of several passes, side by side
svg.py       one panel as SVG
png.py       a matrix as a small PNG
page.py      the page
"""
