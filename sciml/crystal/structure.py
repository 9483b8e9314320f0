"""`Crystal`: a structure in exact symmetry as a JAX pytree, padded so that crystals of any group batch
together.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sciml.crystal.detection import Detection


class Crystal(eqx.Module):
    """Atoms of a primitive cell; arrays only, so that crystals can be stacked, sharded and vmapped.

    - `lattice`: rows of the primitive cell in Å.
    - `fractional`: coordinates of the atoms; zero where padded.
    - `species`: atomic numbers; 0 where padded.
    - `orbit`: index of the first atom of the crystallographic orbit; the atom's own index where padded.
    - `hall_number`: setting 1..530 that the primitive cell belongs to.
    """

    lattice: Float[Array, "*batch 3 3"]
    fractional: Float[Array, "*batch atoms 3"]
    species: Int[Array, "*batch atoms"]
    orbit: Int[Array, "*batch atoms"]
    hall_number: Int[Array, "*batch"]

    @classmethod
    def from_detection(cls, found: Detection, pad_atoms: int | None = None) -> "Crystal":
        """The crystal of a `Detection`.

        Raises `ValueError` when it has more atoms than `pad_atoms`.
        """
        return cls(*map(jnp.asarray, _padded(found, len(found.species) if pad_atoms is None else pad_atoms)))

    @classmethod
    def stack(cls, found: Sequence[Detection], pad_atoms: int | None = None) -> "Crystal":
        """Several crystals along a leading axis, padded to the largest or to `pad_atoms`."""
        atoms = max(len(one.species) for one in found) if pad_atoms is None else pad_atoms
        columns = zip(*(_padded(one, atoms) for one in found), strict=True)
        return cls(*(jnp.asarray(np.stack(column)) for column in columns))

    @property
    def mask(self) -> Bool[Array, "*batch atoms"]:
        """True for atoms, False for padding."""
        return self.species > 0

    @property
    def representative(self) -> Bool[Array, "*batch atoms"]:
        """True for the first atom of every orbit: the tokens of a symmetric model."""
        return self.mask & (self.orbit == jnp.arange(self.species.shape[-1]))

    @property
    def multiplicity(self) -> Int[Array, "*batch atoms"]:
        """Number of atoms of the primitive cell in the atom's orbit; 0 where padded."""
        same = (self.orbit[..., :, None] == self.orbit[..., None, :]) & self.mask[..., None, :]
        return same.sum(-1) * self.mask


def _padded(found: Detection, atoms: int) -> tuple[np.ndarray, ...]:
    count = len(found.species)
    more = atoms - count
    if more < 0:
        raise ValueError(
            f"{found.name} has {count} atoms in its primitive cell and does not fit pad_atoms = {atoms}"
        )
    return (
        found.lattice,
        np.pad(found.fractional, ((0, more), (0, 0))),
        np.pad(found.species, (0, more)),
        np.concatenate([found.orbit, np.arange(count, atoms)]).astype(np.int32),
        np.array(found.hall_number, np.int32),
    )
