"""Multiply a long number by one digit as a Turing machine does."""

from harness.tasks.turing_products import TuringProducts


class TuringMultiplication1(TuringProducts):
    """a * b with one digit in b, most significant digit first: every step's tape, the product.

    $432*5|43c*5(10~1,0)|4d*5(15~1,60)|e*5(20~2,160)|^*5(00~0,2160)|2160.

    A step reads the last digit of a, written as a letter (a..j stand for 0..9), or ^ where a has
    none left. It writes (digit times b ~ carry, product so far), the first two padded with zeros
    to 2 and 1 digits; the next step has lost that digit. It goes on until nothing is left to carry.
    Options: format, "scratchpad", or the product alone as `harness.tasks.formats` shows:
    "plain", "reversed", "hints", "reversed+hints".

    Vocabulary: the digits 0..9 (ids 0..9), a..j (ids 10..19), "^", "$", "*", "|", "(", "~", ")",
    ",", "." and what the format adds. All digits are uniform, also the first.
    Length n: the number of digits of a, 2 or more, with hints up to 127.
    Chance: all but a vanishing share of the free tokens of long answers are digits of a and of the
    product, about uniformly random, so 1/10; of a bare product a fifth are 0, as b may be.

    Paper: Hou et al. 2024, "Universal Length Generalization with Turing Programs", Figure 4, in the
    compact form that its experiments use.
    """

    name = "turing_multiplication_1"
    digits = more = 1
    bare_chance = 0.19
    best_constant = ((6, 0.48), (10, 0.41), (25, 0.3), (47, 0.24), (56, 0.22))
    example = "$432*5|43c*5(10~1,0)|4d*5(15~1,60)|e*5(20~2,160)|^*5(00~0,2160)|2160."
