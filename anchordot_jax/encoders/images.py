"""Decoding one picture: every way it can fail is a reason, not a crash."""

import io
from pathlib import Path
from typing import Any

from anchordot_jax.encoders.base import Rejected
from anchordot_jax.errors import reason
from anchordot_jax.extras import needs

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
WHITE = (255, 255, 255, 255)


def decode(value: Any) -> Any:
    """Return a picture as RGB, upright, transparent parts on white.

    Args:
        value: a path, the bytes of an image file, or a function that returns them.

    Raises:
        Rejected: the file is missing, truncated, or no picture.
    """
    image = needs("PIL.Image", extra="images", what="Reading images")
    ops = needs("PIL.ImageOps", extra="images", what="Reading images")
    try:
        with image.open(io.BytesIO(_bytes(value))) as opened:
            opened.load()
            upright = ops.exif_transpose(opened)
    except FileNotFoundError:
        raise Rejected("the image file is missing") from None
    except image.UnidentifiedImageError:
        raise Rejected("not an image file, or a damaged one") from None
    except image.DecompressionBombError:
        raise Rejected("the image is implausibly large") from None
    except (OSError, ValueError, SyntaxError, EOFError, ArithmeticError) as error:
        raise Rejected(f"damaged image: {reason(error)}") from None
    if upright.mode == "RGB" and "transparency" not in upright.info:
        return upright
    if upright.has_transparency_data:
        layer = upright.convert("RGBA")
        ground = image.new("RGBA", layer.size, WHITE)
        ground.alpha_composite(layer)
        return ground.convert("RGB")
    return upright.convert("RGB")


def _bytes(value: Any) -> bytes:
    if isinstance(value, str | Path):
        value = Path(value).read_bytes()
    elif callable(value):
        value = value()
    if not value:
        raise Rejected("the image file is empty")
    return bytes(value)
