"""What encodings with learned cursors share: gate networks, gates, the copy branch, the score.

controllers.py  a gate network reads the tokens: GRU, convolution, or each token alone
options.py      what can be chosen
gates.py        its features become probabilities of reset, step forward, step back, stay
copying.py      the optional copy branch: take the position of an earlier token
layer.py        one layer of cursors: tokens in, position streams out
encoding.py     streams become widened queries and keys
pictures.py     pictures of them, token by token; pictures_constants.py: for all tokens alike
"""
