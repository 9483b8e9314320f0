"""One crystal in other words: the same atoms in another cell, origin, orientation or order.

A model of crystals must not notice. `redescribe` makes the descriptions; `check_descriptions` runs the whole
way from a `Cell` to features for all of them and reports the largest differences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.crystal.cell import Cell
from sciml.crystal.detection import Detection, detect
from sciml.crystal.features import atom_features
from sciml.crystal.fourier import FourierBasis
from sciml.crystal.io import Source, parse
from sciml.crystal.lattice import lattice_from_parameters, metric_of, miller_ball, reciprocal_metric
from sciml.crystal.seitz import DENOMINATOR
from sciml.crystal.space_group import Backend, FoundSymmetry, SpaceGroup, find_symmetry
from sciml.crystal.star import build_stars, index_ball, stars_within

Described = tuple[
    np.ndarray, np.ndarray, np.ndarray
]  # lattice, fractional, index of the atom in the given cell


def _primitive(cell: Cell, found: FoundSymmetry, rng: np.random.Generator) -> Described:
    setting = SpaceGroup.from_hall_number(found.hall_number)
    change = setting.primitive_coordinates @ found.transformation
    chosen = np.unique(found.representative)
    return np.linalg.inv(change).T @ cell.lattice, cell.fractional[chosen] @ change.T, chosen


def _conventional(cell: Cell, found: FoundSymmetry, rng: np.random.Generator) -> Described:
    setting = SpaceGroup.from_hall_number(found.hall_number)
    chosen = np.unique(found.representative)
    inside = cell.fractional[chosen] @ found.transformation.T + found.origin
    shifts = setting.centring_translations / DENOMINATOR
    fractional = (inside[None] + shifts[:, None]).reshape(-1, 3)
    return np.linalg.inv(found.transformation).T @ cell.lattice, fractional, np.tile(chosen, len(shifts))


def _supercell(cell: Cell, found: FoundSymmetry, rng: np.random.Generator) -> Described:
    axis = int(rng.integers(3))
    multiples = np.eye(3, dtype=int)
    multiples[axis, axis] = 2
    multiples[axis, (axis + 1) % 3] = int(rng.integers(2))
    offset = np.zeros(3)
    offset[axis] = 1
    fractional = np.concatenate([cell.fractional, cell.fractional + offset]) @ np.linalg.inv(multiples)
    return multiples @ cell.lattice, fractional, np.tile(np.arange(len(cell)), 2)


def _shifted(cell: Cell, found: FoundSymmetry, rng: np.random.Generator) -> Described:
    return cell.lattice, cell.fractional + rng.uniform(size=3), np.arange(len(cell))


def _rotated(cell: Cell, found: FoundSymmetry, rng: np.random.Generator) -> Described:
    rotation, upper = np.linalg.qr(rng.normal(size=(3, 3)))
    rotation = rotation * np.sign(np.diag(upper))
    return cell.lattice @ (rotation * np.sign(np.linalg.det(rotation))), cell.fractional, np.arange(len(cell))


def _permuted(cell: Cell, found: FoundSymmetry, rng: np.random.Generator) -> Described:
    axes = [(1, 2, 0), (2, 0, 1), (1, 0, 2), (0, 2, 1), (2, 1, 0)][
        int(rng.integers(5))
    ]  # some are left-handed
    return cell.lattice[list(axes)], cell.fractional[:, list(axes)], np.arange(len(cell))


def _p1_listing(cell: Cell, found: FoundSymmetry, rng: np.random.Generator) -> Described:
    lattice, fractional, source = _conventional(cell, found, rng)
    order = rng.permutation(len(source))
    return lattice, np.round(fractional[order] % 1.0, 6), source[order]


WAYS: dict[str, Callable[[Cell, FoundSymmetry, np.random.Generator], Described]] = {
    "primitive": _primitive,
    "conventional": _conventional,
    "supercell": _supercell,
    "shifted origin": _shifted,
    "rotated": _rotated,
    "permuted axes": _permuted,
    "P1 listing": _p1_listing,
}


def redescribe(
    cell: Cell, way: str, rng: np.random.Generator, *, symprec: float = 0.01, backend: Backend = "spglib"
) -> tuple[Cell, np.ndarray]:
    """The crystal described in another `way`, a key of `WAYS`; with the atom of the given cell that
    each atom is.
    """
    found = find_symmetry(cell.lattice, cell.fractional, cell.species, symprec=symprec, backend=backend)
    lattice, fractional, source = WAYS[way](cell, found, rng)
    return Cell(lattice, fractional, cell.species[source], f"{cell.name} ({way})"), source


@dataclass(frozen=True)
class DescriptionCheck:
    """Outcome for one crystal.

    - `inequality`: for every description, the largest difference of a basis feature between equivalent atoms,
      relative to the largest feature.
    - `dependence`: the largest difference of a kernel feature from that in the given description, relative to
      the largest.
    - `numbers`: the space-group number found in every description.
    - `number_only`: the first quantity when the tabulated group of that *number* is applied to the
      coordinates as given, as published pipelines do.
    """

    name: str
    ways: tuple[str, ...]
    inequality: tuple[float, ...]
    dependence: tuple[float, ...]
    numbers: tuple[int, ...]
    number_only: float


def check_descriptions(
    cell: Cell,
    *,
    ways: Sequence[str] = tuple(WAYS),
    symprec: float = 0.01,
    backend: Backend = "spglib",
    seed: int = 0,
) -> DescriptionCheck:
    """Features of equivalent atoms in the given description and in `ways`; float32.

    Which atoms are equivalent is said once, for the structure as given, by the symmetry library (its answer
    at `symprec`) and by `detect`; both partitions must hold in every description.
    """
    rng = np.random.default_rng(seed)
    found = find_symmetry(cell.lattice, cell.fractional, cell.species, symprec=symprec, backend=backend)
    inequality, dependence, numbers = [], [], []
    reference, orbits = None, (found.orbits,)
    for way in ("as given", *ways):
        if way == "as given":
            described, source = cell, np.arange(len(cell))
        else:
            lattice, fractional, source = WAYS[way](cell, found, rng)
            described = Cell(lattice, fractional, cell.species[source], f"{cell.name} ({way})")
        detection = detect(described, symprec=symprec, backend=backend)
        if reference is None:
            orbits = found.orbits, detection.orbit[detection.atom_of]
        values, kernels = _features(detection)
        values = values[detection.atom_of]
        inequality.append(max(_spread(values, labels[source]) for labels in orbits))
        kernels = kernels[detection.atom_of]
        if reference is None:
            reference = kernels
        dependence.append(float(np.abs(kernels - reference[source]).max() / np.abs(reference).max()))
        numbers.append(detection.number)
    return DescriptionCheck(
        cell.name,
        ("as given", *ways),
        tuple(inequality),
        tuple(dependence),
        tuple(numbers),
        _spread(_number_only(cell, found.number), found.orbits),
    )


def _spread(values: np.ndarray, labels: np.ndarray) -> float:
    first = np.unique(labels, return_index=True, return_inverse=True)
    return float(np.abs(values - values[first[1]][first[2]]).max() / np.abs(values).max())


@eqx.filter_jit
def _evaluate(
    basis: FourierBasis, lattice, fractional, weights, cutoff
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    return jax.vmap(basis)(fractional), atom_features(basis, lattice, fractional, weights, cutoff=cutoff)


def _features(found: Detection, cutoff: float = 0.45) -> tuple[np.ndarray, np.ndarray]:
    table = stars_within(found.space_group, found.lattice, cutoff)
    stars, members = table.phase.shape
    atoms = len(found.species)
    more = -atoms % 16
    basis = FourierBasis.from_table(
        table,
        found.lattice,
        pad_stars=_round_up(stars),
        pad_members=1 if members == 1 else -(-members // 8) * 8,
    )
    weights = np.stack([np.ones(atoms), found.species / 50], axis=1)
    arrays = (
        found.lattice,
        np.pad(found.fractional, ((0, more), (0, 0))),
        np.pad(weights, ((0, more), (0, 0))),
    )
    lattice, fractional, weights = (jnp.asarray(a.astype(basis.frequency.dtype)) for a in arrays)
    values, kernels = _evaluate(basis, lattice, fractional, weights, jnp.asarray(cutoff, fractional.dtype))
    return np.asarray(values)[:atoms].reshape(atoms, -1), np.asarray(kernels)[:atoms].reshape(atoms, -1)


def _round_up(size: int) -> int:
    return 1 << max(5, (size - 1).bit_length())


@eqx.filter_jit
def _values(basis: FourierBasis, fractional: Float[Array, "atoms 3"]) -> Float[Array, "atoms stars 2"]:
    return jax.vmap(basis)(fractional)


def _number_only(cell: Cell, number: int) -> np.ndarray:
    """The 514 (trigonal, hexagonal: 418) modes of the tabulated group, origin 2 and hexagonal axes, at
    the given coordinates.
    """
    group = SpaceGroup.from_number(number)
    hexagonal = 143 <= number <= 194
    lattice = lattice_from_parameters(1, 1, 1, 90, 90, 120) if hexagonal else np.eye(3)
    miller = miller_ball(reciprocal_metric(metric_of(lattice)), 5.0) if hexagonal else index_ball(5)
    basis = FourierBasis.from_table(
        build_stars(group, miller[miller.any(1)]), lattice, pad_stars=257, pad_members=24
    )
    fractional = np.pad(cell.fractional % 1.0, ((0, -len(cell) % 16), (0, 0)))
    values = _values(basis, jnp.asarray(fractional.astype(basis.frequency.dtype)))
    return np.asarray(values)[: len(cell)].reshape(len(cell), -1)


def check_source(task: tuple[Source, dict[str, Any]]) -> DescriptionCheck:
    """`check_descriptions` of a structure that is not parsed yet: a task for worker processes."""
    source, options = task
    return check_descriptions(parse(source), **options)
