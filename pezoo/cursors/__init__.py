"""Parts of encodings with learned cursors: gate networks, gates, copy branch, score.

options.py      the options that they share
controllers.py  gate networks, which read the tokens: GRU or latch
gates.py        from features to probabilities of reset, step forward, step back, stay
copying.py      the optional copy branch: take the position of an earlier token
positions.py    gates move positions, held as histograms (prism) or as characteristic functions
                (prism_spectral), and streams and their norms come from positions
layer.py        one layer of cursors: tokens in, position streams out
documents.py    packed documents, each computed on its own
memory.py       state for decoding
encoding.py     the base class: streams become widened queries and keys
pictures.py     pictures of parameters, and token by token
"""
