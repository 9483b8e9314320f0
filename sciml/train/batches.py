"""Batches as a function of the update number, so that a resumed run sees the same ones."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import PyTree


class Shuffled:
    """Batches of a data set in a new random order every epoch; a remainder smaller than a batch is left out.

    `batches(step)` depends only on the step and the seed.

    **Arguments:**

    - `data`: pytree of arrays with equal leading axes (samples).
    - `size`: samples per batch.
    - `seed`: of the order.

    **Raises:** `ValueError` for unequal leading axes or a batch that is larger than the data set.
    """

    def __init__(self, data: PyTree, size: int, *, seed: int = 0):
        lengths = {len(leaf) for leaf in jax.tree.leaves(data)}
        if len(lengths) != 1:
            raise ValueError(f"the arrays of a data set have different numbers of samples: {sorted(lengths)}")
        (self.samples,) = lengths
        if not 1 <= size <= self.samples:
            raise ValueError(f"a batch of {size} cannot be drawn from {self.samples} samples")
        self.data, self.size, self.seed = data, size, seed
        self.steps_per_epoch = self.samples // size
        self._epoch, self._order = -1, np.arange(self.samples)

    def __call__(self, step: int) -> PyTree:
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = (
                epoch,
                np.random.default_rng([self.seed, epoch]).permutation(self.samples),
            )
        chosen = self._order[place * self.size : (place + 1) * self.size]
        return jax.tree.map(lambda leaf: leaf[chosen], self.data)
