"""What encodings with learned cursors share: gate networks, gates, the copy branch, the score.

options.py      what can be chosen
controllers.py  a gate network reads the tokens: GRU, latch, convolution, or each token alone
gates.py        its features become probabilities of reset, step forward, step back, stay
copying.py      the optional copy branch: take the position of an earlier token
histograms.py   gates move positions held as histograms (prism)
spectrum.py     gates move positions held as characteristic functions (prism_spectral)
layer.py        one layer of cursors: tokens in, position streams out
documents.py    packed documents run apart
scaling.py      Algorithm 3: the norms and weights of streams
memory.py       what decoding keeps
encoding.py     streams become widened queries and keys
pictures.py     pictures of them, token by token; pictures_constants.py: for all tokens alike
"""
