"""Space-group-adapted Fourier functions: an orthonormal basis, series in it, kernel sums and structure
factors.

`FourierBasis` turns fractional coordinates into the values of all invariant functions up to a cut-off. For
the star of k0 with members m, weights w_m and size |O|

    e_O(x) = |O|^{-1/2} Σ_{m in O} w_m exp(2πi m·x),        mean over the cell of conj(e_O) e_O' = δ_OO'.

Real functions: √2 Re e_O and √2 Im e_O when -k0 is not in O; the one function exp(-iθ/2) e_O, w_{-k0} =
exp(iθ), when it is. Every function is an eigenfunction of the Laplacian with eigenvalue -4π²|k|².

`SymmetricFourierSeries` is Σ c f with learned coefficients: a function on the crystal that is invariant
whatever the coefficients. `kernel_sum` is the two-point function Σ φ(|k|) f(x) f(y), which does not depend on
origin, setting or cell.

Tables are integer arrays (no optimiser touches them) made once from a `StarTable`; only `frequency` is a
float, and it is read through `stop_gradient`. Bases of different groups padded to one shape share one trace
and can be stacked and vmapped.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from sciml.crystal.lattice import metric_of, reciprocal_metric, symmetrise_metric
from sciml.crystal.space_group import SpaceGroup
from sciml.crystal.star import PHASE_DENOMINATOR, StarTable, first_stars, stars_within
from sciml.typing import Key

_SPLIT = 4096.0  # coordinates are split at 12 bits, so that m·x is exact in float32 for |m| < 1000


class FourierBasis(eqx.Module):
    """Orthonormal invariant functions of a space group up to a cut-off in |k|.

    **Arguments:**

    - `space_group`: operators of the cell that `lattice` describes; use `SpaceGroup.primitive` with a
      primitive cell.
    - `lattice`: rows a, b, c in Å.
    - `cutoff`: largest |k| in 1/Å (no 2π), or
    - `stars`: number of stars of smallest |k|; exactly one of the two.
    - `pad_stars`, `pad_members`: pad the tables to this shape; default no padding.

    Raises `ValueError` when the lattice does not fit the group or the padding is too small.

    Shapes: S stars, W members of the largest. Function (s, 0) is the cosine-like one, (s, 1) the sine-like
    one; the latter is zero for centric stars, and both are for padded rows.
    """

    miller: Int[Array, "stars members 3"]
    phase: Int[Array, "stars members"]
    members: Int[Array, " stars"]
    centric: Bool[Array, " stars"]
    frequency: Float[Array, " stars"]

    def __init__(
        self,
        space_group: SpaceGroup,
        lattice: np.ndarray,
        *,
        cutoff: float | None = None,
        stars: int | None = None,
        pad_stars: int | None = None,
        pad_members: int | None = None,
    ):
        if (cutoff is None) == (stars is None):
            raise ValueError("give exactly one of cutoff (1/Å) and stars (a number)")
        if cutoff is not None:
            table = stars_within(space_group, lattice, cutoff)
        else:
            assert stars is not None
            table = first_stars(space_group, lattice, stars)
        arrays = basis_arrays(table, lattice, pad_stars=pad_stars, pad_members=pad_members)
        self.miller, self.phase, self.members, self.centric, self.frequency = map(_device_array, arrays)

    @classmethod
    def from_table(
        cls,
        table: StarTable,
        lattice: np.ndarray,
        *,
        pad_stars: int | None = None,
        pad_members: int | None = None,
    ) -> "FourierBasis":
        """The basis of a given `StarTable`, in the table's order."""
        return cls.from_arrays(basis_arrays(table, lattice, pad_stars=pad_stars, pad_members=pad_members))

    @classmethod
    def from_arrays(cls, arrays: Sequence[np.ndarray]) -> "FourierBasis":
        """The basis of arrays made by `basis_arrays`, with or without a leading axis of crystals."""
        basis = object.__new__(cls)
        for name, array in zip(("miller", "phase", "members", "centric", "frequency"), arrays, strict=True):
            object.__setattr__(basis, name, _device_array(array))
        return basis

    @property
    def exists(self) -> Bool[Array, "stars 2"]:
        """Which of the (S, 2) functions exist: False for padded rows and for the sine of centric stars."""
        used = self.members > 0
        return jnp.stack([used, used & ~self.centric], axis=-1)

    def __call__(self, fractional: Float[Array, " 3"]) -> Float[Array, "stars 2"]:
        """Values of all functions at fractional coordinates, in the dtype of the coordinates."""
        turns, amplitude = self._turns(fractional)
        angle = 2 * np.pi * turns
        cosine = (jnp.cos(angle) * amplitude).sum(-1)
        sine = (jnp.sin(angle) * amplitude).sum(-1)
        return jnp.stack([cosine, jnp.where(self.centric, 0, sine)], axis=-1)

    def value_and_gradient(
        self, fractional: Float[Array, " 3"]
    ) -> tuple[Float[Array, "stars 2"], Float[Array, "stars 2 3"]]:
        """Values and their derivatives by the fractional coordinates (∂f/∂r = L⁻¹ ∂f/∂x for lattice
        rows L).
        """
        turns, amplitude = self._turns(fractional)
        angle = 2 * np.pi * turns
        cosine, sine = jnp.cos(angle) * amplitude, jnp.sin(angle) * amplitude
        miller = self.miller.astype(fractional.dtype)
        acentric = ~self.centric
        values = jnp.stack([cosine.sum(-1), acentric * sine.sum(-1)], axis=-1)
        by_cosine = -2 * np.pi * (sine[..., None] * miller).sum(-2)
        by_sine = 2 * np.pi * (cosine[..., None] * miller).sum(-2) * acentric[:, None]
        return values, jnp.stack([by_cosine, by_sine], axis=-2)

    def complex_values(self, fractional: Float[Array, " 3"]) -> Complex[Array, "stars 2"]:
        """The complex basis: (e_O, e_-O) of every star; (e_O, 0) for centric stars, where e_O is real."""
        cosine, sine = jnp.moveaxis(self(fractional), -1, 0)
        scale = jnp.where(self.centric, 1.0, np.sqrt(0.5)).astype(cosine.dtype)
        wave = jax.lax.complex(cosine * scale, sine * scale)
        return jnp.stack([wave, jnp.where(self.centric, 0, jnp.conj(wave))], axis=-1)

    def structure_factors(
        self, fractional: Float[Array, "atoms 3"], weights: Float[Array, "atoms *channels"]
    ) -> Float[Array, "stars 2 *channels"]:
        """Coefficients Σ_a w_a f(x_a) of point atoms with weights (zero for padded atoms), all atoms of the
        cell listed.
        """
        return jnp.einsum(
            "asr,a...->sr...", jax.vmap(self)(fractional), weights, precision=jax.lax.Precision.HIGHEST
        )

    def _turns(self, fractional):
        """(m·x + phase) modulo 1 in turns, and amplitudes, both (S, W); exact enough for float32."""
        dtype = fractional.dtype
        x = fractional - jax.lax.stop_gradient(jnp.round(fractional))
        coarse = jax.lax.stop_gradient(jnp.round(x * _SPLIT) / _SPLIT)
        fine = x - coarse
        m = self.miller.astype(dtype)
        turns = m[..., 0] * coarse[0] + m[..., 1] * coarse[1] + m[..., 2] * coarse[2]
        turns = turns - jnp.round(turns)
        turns = turns + (m[..., 0] * fine[0] + m[..., 1] * fine[1] + m[..., 2] * fine[2])
        turns = turns + self.phase.astype(dtype) / PHASE_DENOMINATOR
        used = jnp.arange(self.miller.shape[-2]) < self.members[:, None]
        constant = ~self.miller.any((-2, -1))  # k = 0 has no mate
        amplitude = jnp.where(constant, 1, jnp.sqrt(2 / jnp.maximum(self.members, 1).astype(dtype)))
        return turns, used * amplitude.astype(dtype)[:, None]


def _device_array(array: np.ndarray) -> Array:
    # rounding to the default precision in numpy saves one compilation per shape
    return jnp.asarray(array.astype(jax.dtypes.canonicalize_dtype(array.dtype)))


def basis_arrays(
    table: StarTable, lattice: np.ndarray, *, pad_stars: int | None = None, pad_members: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Arrays of a `FourierBasis` in numpy: miller, phase, members, centric, frequency; padded.

    Raises `ValueError` when the table is larger than the padding.
    """
    stars, width = table.phase.shape
    rows = stars if pad_stars is None else pad_stars
    columns = width if pad_members is None else pad_members
    if rows < stars or columns < width:
        raise ValueError(
            f"the table has {stars} stars of up to {width} members and does not fit {rows} x {columns}"
        )
    reciprocal = reciprocal_metric(symmetrise_metric(table.space_group, metric_of(lattice)))
    more = rows - stars
    return (
        np.pad(table.miller, ((0, more), (0, columns - width), (0, 0))).astype(np.int32),
        np.pad(table.phase, ((0, more), (0, columns - width))).astype(np.int32),
        np.pad(table.members, (0, more)).astype(np.int32),
        np.pad(table.centric, (0, more)),
        np.pad(table.frequency(reciprocal), (0, more)),
    )


def stack_bases(tables: Sequence[StarTable], lattices: Sequence[np.ndarray]) -> FourierBasis:
    """Bases of several crystals, of any groups, padded to one shape and stacked along a leading axis for
    `jax.vmap`.
    """
    stars = max(len(table) for table in tables)
    width = max(table.phase.shape[1] for table in tables)
    arrays = [
        basis_arrays(table, lattice, pad_stars=stars, pad_members=width)
        for table, lattice in zip(tables, lattices, strict=True)
    ]
    return FourierBasis.from_arrays([np.stack(column) for column in zip(*arrays, strict=True)])


class SymmetricFourierSeries(eqx.Module):
    """A learned function on the crystal, f(x) = Σ_s c_s f_s(x), invariant for every value of the
    coefficients.

    **Arguments:**

    - `basis`: the `FourierBasis`.
    - `channels`: trailing shape of the values; default () for a scalar function.
    - `key`: initial coefficients are normal, scaled so that f has unit mean square.
    """

    basis: FourierBasis
    coefficients: Float[Array, "stars 2 *channels"]

    def __init__(self, basis: FourierBasis, channels: tuple[int, ...] = (), *, key: Key):
        self.basis = basis
        exists = basis.exists.reshape(basis.exists.shape + (1,) * len(channels))
        noise = jax.random.normal(key, (*basis.exists.shape, *channels), basis.frequency.dtype)
        self.coefficients = noise * exists / jnp.sqrt(jnp.maximum(basis.exists.sum(), 1))

    def __call__(self, fractional: Float[Array, " 3"]) -> Float[Array, " *channels"]:
        """Value at fractional coordinates."""
        coefficients = self.coefficients.astype(fractional.dtype)
        return jnp.einsum(
            "sr,sr...->...", self.basis(fractional), coefficients, precision=jax.lax.Precision.HIGHEST
        )


def kernel_sum(
    basis: FourierBasis,
    radial: Float[Array, "stars *channels"],
    x: Float[Array, " 3"],
    y: Float[Array, " 3"],
) -> Float[Array, " *channels"]:
    """Two-point function of the crystal,

        K_φ(x, y) = Σ_O φ(|k_O|) e_O(x) conj(e_O(y)) = |G|⁻¹ Σ_g Σ_k φ(|k|) exp(2πi k·(x - g y)).

    It depends on the crystal alone: not on origin, setting, orientation or choice of cell (for a basis that
    holds whole shells of |k|). `radial` holds φ at `basis.frequency`.
    """
    products = (basis(x) * basis(y)).sum(-1)
    return jnp.einsum("s,s...->...", products, radial, precision=jax.lax.Precision.HIGHEST)


def structure_factors(
    miller: Int[Array, "reflections 3"], fractional: Float[Array, "atoms 3"], weights: Float[Array, " atoms"]
) -> Complex[Array, " reflections"]:
    """F(h) = Σ_a w_a exp(2πi h·x_a) for all atoms of the cell; F(hR) = F(h) exp(-2πi h·t) for every
    operator.
    """
    turns = fractional @ miller.T.astype(fractional.dtype)
    angle = 2 * np.pi * (turns - jax.lax.stop_gradient(jnp.round(turns)))
    return weights @ jax.lax.complex(jnp.cos(angle), jnp.sin(angle))
