"""The bits of a text, compared with its tokens, its gain and the bits of all places."""

from collections.abc import Iterator, Sequence

from experiment.config import RunConfig
from harness.cli.verify.build import task_of
from leaderboard.record.schema import Score

ROUNDED = 1e-3
DRAWN = 0.1  # share of the bits; encodings that draw positions come within .02
MOST_BITS = 1000.0  # a token: logits that differ by more are no model's


def bits_faults(score: Score, config: RunConfig, scores: Sequence[Score]) -> Iterator[str]:
    """Yield what the bits of a score contradict; `scores` have those of the last tokens alone.

    A wrong token costs at least one bit, as another one is as likely. Bits and gain add up to the
    bits with the training length alone as context, which are those of that length, but for
    positions that are drawn anew. A mean of n values above 0 has at most itself as standard error.
    """
    if score.bits is None:
        return
    bits, gain, most = score.bits, score.gain or 0.0, config.first.train.lengths[1]
    if bits < (least := 1 - (score.token or 0.0)) - ROUNDED:
        yield f"bits is {bits:g}, expected {least:.4g} or more: each wrong token costs one"
    there = next((one.bits for one in scores if one.length == most and one.bits), None)
    low, high = (0.0, MOST_BITS) if there is None else ((1 - DRAWN) * there, (1 + DRAWN) * there)
    if score.length <= most:
        low = high = bits
    if not low - ROUNDED <= bits + gain <= high + ROUNDED:
        yield f"gain is {gain:g}, expected {low - bits:.4g} to {high - bits:.4g}"
    elif (score.gain_error or 0.0) > (spread := (2 * bits + gain) * (score.length > most)):
        yield f"gain_error is {score.gain_error:g}, expected at most {spread:.4g}"
    if (largest := max(bits, *score.by_place, 0.0)) > MOST_BITS:
        yield f"{largest:g} bits a token, expected at most {MOST_BITS:g}"
    yield from _places(score, config)


def _places(score: Score, config: RunConfig) -> Iterator[str]:
    """Compare the bits of places 1, 2-3, 4-7, ... with those of the target, the last places."""
    asked, size = task_of(config.task).max_tokens(score.length)
    count, own = asked + size - 1, score.by_place
    if score.tokens not in (None, size * (score.count or 0)):  # of another length than the longest
        return
    places = 0 if config.eval.window else count.bit_length()
    if len(own) != places:
        yield f"by_place has {len(own)} numbers, expected {places}"
    elif places:
        ends = [min(2 ** (at + 1) - 1, count) for at in range(places)]
        sums = [own[at] * (end + 1 - 2**at) for at, end in enumerate(ends)]
        inside = sum(one for at, one in enumerate(sums) if 2**at > count - size)
        touched = sum(one for one, end in zip(sums, ends, strict=True) if end > count - size)
        total, slack = (score.bits or 0.0) * size, ROUNDED * (1 + touched)
        if not inside - slack <= total <= touched + slack:
            yield (
                f"by_place gives {inside / size:.4g} to {touched / size:.4g} bits a token of the "
                f"target, but bits is {score.bits:g}"
            )
