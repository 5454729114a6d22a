"""Settings of SUE and of its closed form."""

import dataclasses

from anchordot_jax.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphSettings:
    """The neighbour graph that both methods embed, and what the pairs fit on it."""

    eigenvectors: int = 30
    """Spectral coordinates a side."""
    neighbours: int = 30
    """Nearest other items that an item is joined to."""
    scale_k: int = 15
    """The kernel's width is the median distance to the scale_k-th nearest item, an
    item counting as its own first."""
    components: int = 8
    """Canonical directions that the pairs keep."""
    centered: bool = False
    """Whether the coordinates are centred and scaled before the canonical rotation, as
    they are while it is fitted; the authors apply it to them as they are."""

    def __post_init__(self) -> None:
        _at_least_one(self, "eigenvectors", "neighbours", "scale_k", "components")
        if self.components > self.eigenvectors:
            raise InputError(
                f"components must be at most eigenvectors, got {self.components} and "
                f"{self.eigenvectors}; keep fewer components."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SueSettings(GraphSettings):
    """The authors' settings for Flickr30k."""

    hidden: tuple[int, ...] = (4096, 4096, 1024)
    """Widths of the spectral network's hidden layers."""
    input_gain: float = 1.0
    """Factor of the unit-norm rows that go into the network."""
    epochs: int = 100
    """Most epochs of a spectral network."""
    batch_size: int = 5162
    """Most items in a batch, and so in a batch's graph."""
    learning_rate: float = 1e-4
    """Adam's, until the validation loss stops falling."""
    patience: int = 10
    """Epochs without a better validation loss before the learning rate is divided."""
    factor: float = 0.1
    """What the learning rate is multiplied by then."""
    least_learning_rate: float = 1e-8
    """Training stops when the learning rate is no larger."""
    validation: float = 0.1
    """Share of the items that only measure when to stop."""
    residual: bool = True
    """Whether the x side ends with the network that lowers the MMD."""
    residual_hidden: tuple[int, ...] = (32, 32)
    """Widths of its hidden layers."""
    residual_epochs: int = 100
    """Its epochs; the weights of the best validation loss are kept."""
    residual_batch_size: int = 32
    """Items of each side in a batch."""
    residual_learning_rate: float = 1e-3
    """AdamW's."""
    residual_weight_decay: float = 0.01
    """AdamW's, on kernels and biases alike."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden", "residual_hidden"):
            widths = tuple(getattr(self, name))
            if any(width < 1 for width in widths):
                raise InputError(f"{name} must be widths of at least 1, got {widths}.")
            # A list, as JSON gives it, could not be a static argument.
            object.__setattr__(self, name, widths)
        _at_least_one(self, "epochs", "patience", "residual_epochs")
        if min(self.batch_size, self.residual_batch_size) < 2:
            raise InputError(
                f"batch_size and residual_batch_size must be at least 2, got "
                f"{self.batch_size} and {self.residual_batch_size}."
            )
        for name in ("input_gain", "learning_rate", "residual_learning_rate"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be > 0, got {getattr(self, name)!r}.")
        for name in ("factor", "validation"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(
                    f"{name} must lie strictly between 0 and 1, got "
                    f"{getattr(self, name)!r}."
                )


def _at_least_one(settings: GraphSettings, *names: str) -> None:
    for name in names:
        if getattr(settings, name) < 1:
            raise InputError(
                f"{name} must be at least 1, got {getattr(settings, name)!r}."
            )
