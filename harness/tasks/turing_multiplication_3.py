"""Multiply a long number by one of three digits as a Turing machine does."""

from harness.tasks.turing_products import TuringProducts


class TuringMultiplication3(TuringProducts):
    """a * b with three digits in b, most significant digit first: every step's tape, the product.

    $4324*135|432e*135(0540~054,0)|43c*135(0270~032,40)|4d*135(0405~043,740)|
        e*135(0540~058,3740)|^*135(0000~005,83740)|^*135(0000~000,583740)|583740.

    A step reads the last digit of a, written as a letter (a..j stand for 0..9), or ^ where a has
    none left. It writes (digit times b ~ carry, product so far), the first two padded with zeros
    to 4 and 3 digits; the next step has lost that digit. It goes on until nothing is left to carry.
    Options: format, "scratchpad", or the product alone as `harness.tasks.formats` shows:
    "plain", "reversed", "hints", "reversed+hints".

    Vocabulary: the digits 0..9 (ids 0..9), a..j (ids 10..19), "^", "$", "*", "|", "(", "~", ")",
    ",", "." and what the format adds. All digits are uniform, also the first.
    Length n: the number of digits of a, 2 or more, with hints up to 125.
    Chance: all but a vanishing share of the free tokens of long answers are digits of a and of the
    product, about uniformly random, so 1/10.

    Paper: Hou et al. 2024, "Universal Length Generalization with Turing Programs", Figure 4, in the
    compact form that its experiments use.
    """

    name = "turing_multiplication_3"
    digits = more = 3
    best_constant = ((6, 0.43), (10, 0.37), (21, 0.28), (44, 0.21), (52, 0.19))
    example = (
        "$4324*135|432e*135(0540~054,0)|43c*135(0270~032,40)|4d*135(0"
        "405~043,740)|e*135(0540~058,3740)|^*135(0000~005,83740)|^*135(0000~000,583740)|583740."
    )
