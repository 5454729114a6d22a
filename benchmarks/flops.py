"""Floating-point operations that the method needs, counted from the shapes alone.

A product of `[a, b]` and `[b, c]` takes 2 a b c. Only matrix products are counted:
exponentials, softmaxes and Adam are work too, but not what the rate is measured by.
"""


def coupling_iteration(n: int, m: int, r: int) -> int:
    """Return those of a streamed Sinkhorn iteration: the cost twice, 4 n m r."""
    return 4 * n * m * r


def distillation_step(b: int, c: int, e_x: int, e_y: int, k: int, r: int) -> int:
    """Return those of a gradient step on a chunk, by the shorter contraction.

    The cosines of `affinity`: with the larger of the inputs first, Z W (forward, and
    its weights' gradient), (Z W) V^T (forward, and both gradients), the result times
    Y^T (forward, and one gradient), the norms |Y V|; the standardised rows Z and Y are
    constants, so that no gradient reaches them. The target's cost is one more product.

    Args:
        b: rows of x in the chunk.
        c: rows of y.
        e_x: input columns of x, the constant 1 included (d + 1).
        e_y: input columns of y.
        k: dimension of the shared space.
        r: coordinates of the cost; 0 for anchors, whose target is the identity.
    """
    (rows, long), (others, short) = (b, e_x), (c, e_y)
    if e_x < e_y:
        (rows, long), (others, short) = (others, short), (rows, long)
    # Forward, weights' gradient: 2; both gradients: 3 products in all.
    direct = 2 * (2 * rows * long * k) + 3 * (2 * rows * k * short)
    by_gram = 3 * (2 * long * k * short) + 2 * (2 * rows * long * short)
    by_gram += _norms(rows, long, k)
    mapped = by_gram if _gram_is_shorter(rows, long, k) else direct
    compared = 2 * (2 * rows * short * others)
    return mapped + compared + _norms(others, short, k) + 2 * b * c * r


def _norms(rows: int, e: int, k: int) -> int:
    """Return those of the lengths |Y V| and their gradient, the shorter way."""
    if _gram_is_shorter(rows, e, k):
        # V V^T, whose gradient is one product more; Y times it, and the way back.
        return 2 * (2 * e * e * k) + 2 * (2 * rows * e * e)
    return 2 * (2 * rows * e * k)


def _gram_is_shorter(rows: int, e: int, k: int) -> bool:
    return e * (rows + k) < rows * k
