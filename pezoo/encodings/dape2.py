"""DAPE V2: a bias that a small convolution over keys adapts to the content."""

from collections.abc import Callable
from typing import Unpack

from torch import Tensor
from torch.nn.functional import conv2d, leaky_relu

from pezoo.adapters import attention_mask
from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.encodings.dape import DAPE
from pezoo.registry import register


@register("dape2")
class DAPE2(DAPE):
    """Add to the bias of another encoding what convolutions over keys make of it and the logits.

    Formula: z = s + b + f([s; b]) as in `dape`, but each layer of f also reads the keys within
    kernel // 2 tokens of a pair's key. Keys that the query does not see count as 0 in both layers.

    Example: kernel = 1: `dape`. Kernel = 3: attention to a token may follow from the logit of the
    token after it, as in induction heads.

    Shapes: as `dape`; w_in (width, 2H, kernel), w_out (H, width, kernel), at the start uniform in
    +-1/sqrt(n kernel) for n inputs, as torch's convolutions, in the released code too.
    Options: width, of the hidden layer; kernel, the keys that a layer reads, an odd number.
    Errors: ValueError for a width below 1, and for a kernel that is even or below 1.

    Paper: Zheng et al. 2024b, "DAPE V2: Process Attention Score as Feature Map for Length
    Extrapolation", and the authors' code. There only the first layer gets zeros for keys that the
    query does not see, so that the logits of the last tokens change when a text grows; here both,
    which makes decoding with a cache exact. Padding is left out, not a key of 0.
    """

    summary = "another encoding's bias, adapted by convolutions over keys"
    paper = "Zheng et al. 2024b"
    reports = "extrapolates further than dape"
    reads = "text"
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        width: int = 32,
        kernel: int = 3,
        **sizes: Unpack[Sizes],
    ) -> None:
        if kernel < 1 or kernel % 2 == 0:
            raise ValueError(f"kernel must be odd and at least 1, got {kernel}")
        self.reach = kernel
        super().__init__(shape, make_inner, width=width, **sizes)

    def adapted(self, both: Tensor, ctx: Pass) -> Tensor:
        order = (~ctx.key_mask).long().argsort(dim=1, stable=True)[:, None, None]  # padding last
        seen = attention_mask(ctx)

        def sort(x: Tensor, by: Tensor) -> Tensor:
            rows = max(len(x), len(by))
            x = x.expand(rows, -1, -1, -1)
            return x.gather(-1, by.expand(rows, *x.shape[1:3], -1))

        seen = sort(seen, order)
        hidden = self.layer(sort(both, order).mul_(seen), "in", ctx).mul_(seen)
        hidden = leaky_relu(hidden, inplace=True)
        return sort(self.layer(hidden, "out", ctx), order.argsort(-1))

    def layer(self, x: Tensor, name: str, ctx: Pass) -> Tensor:
        """Return a convolution over the keys of x (B, n, T, S)."""
        w, b = (getattr(self, f"{part}_{name}")[ctx.layer].to(x.dtype) for part in "wb")
        return conv2d(x, w[:, :, None], b, padding=(0, self.reach // 2))
