"""`pezoo show`: what one trained run has learned, as one page of pictures.

examples.py     the sequences that the model is run on
activations.py  what the model computes inside on one of them
figures.py      pictures of several examples, before and after training
plots.py        panels as SVG, by matplotlib
page.py         the page
"""
