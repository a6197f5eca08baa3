"""Parts of encodings with learned cursors: gate networks, gates, copy branch, score.

options.py      the options that they share
controllers.py  gate networks, which read the tokens: GRU or latch
gates.py        from features to probabilities of reset, steps and, optionally, copies
positions.py    gates move positions, held as histograms (prism) or as characteristic functions
                (prism_spectral), and streams and their norms come from positions
layer.py        one layer of cursors: tokens in, position streams out, document by document
memory.py       state for decoding
encoding.py     the base class: streams become widened queries and keys
pictures.py     pictures of parameters, and token by token
"""
