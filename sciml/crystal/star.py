"""Stars of reciprocal vectors: orbits of Miller indices, phases, systematic absences.

f(x) = Σ_k c_k exp(2πi k·x) is invariant, f(Rx + t) = f(x), exactly when

    c_{Rᵀk} = exp(2πi k·t) c_k       for every operator {R|t}.

The images {Rᵀk} of one k form its *star*. An operator with Rᵀk = k and k·t no integer forces c_k = 0: a
*systematic absence* (pure translations of a centred cell are such operators, so centring needs no special
case). On an allowed star one coefficient decides all others, c_m = w_m c_{k0} with w_{Rᵀk0} = exp(2πi k0·t).

A real function has c_{-k} = conj(c_k), so k and -k belong together. One row of a `StarTable` is a star
together with its Friedel mate: it carries one real basis function when -k0 lies in the star of k0
(*centric*), two when it does not. Only one of every pair m, -m is stored. Phases are integers in 48ths of a
turn: exact. All arrays are numpy, made once and cached.

Reference: International Tables for Crystallography B (2010), chapter 1.4; A 1.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sciml.crystal.lattice import metric_of, miller_ball, reciprocal_metric, symmetrise_metric
from sciml.crystal.seitz import DENOMINATOR
from sciml.crystal.space_group import SpaceGroup

PHASE_DENOMINATOR = 2 * DENOMINATOR


@dataclass(frozen=True)
class Reflections:
    """Flags of Miller indices, one entry per index: the words of a diffraction table.

    `epsilon`: operators (centring included) that leave k unchanged. `absent`: systematic absence. `centric`:
    some operator maps k to -k.
    """

    epsilon: np.ndarray
    absent: np.ndarray
    centric: np.ndarray


def classify(space_group: SpaceGroup, miller: np.ndarray) -> Reflections:
    """Epsilon factors, systematic absences and centric flags of Miller indices (M, 3); no cut-off is
    involved.
    """
    miller = np.asarray(miller, np.int64)
    images = miller[None] @ space_group.rotations  # (G, M, 3): Rᵀ k as a row
    phases = miller @ space_group.translations.T % DENOMINATOR
    fixed = (images == miller).all(-1)
    return Reflections(
        epsilon=fixed.sum(0),
        absent=(fixed & (phases.T != 0)).any(0),
        centric=(images == -miller).all(-1).any(0),
    )


def count_stars(space_group: SpaceGroup, miller: np.ndarray) -> int:
    """Number of allowed stars (k and -k counted apart) in a set that the group maps to itself, by the trace
    formula

    |G|⁻¹ Σ_g Σ_{k : Rᵀk = k} exp(2πi k·t).
    """
    miller = np.asarray(miller, np.int64)
    fixed = (miller[None] @ space_group.rotations == miller).all(-1)
    waves = np.exp(2j * np.pi / DENOMINATOR * (miller @ space_group.translations.T % DENOMINATOR).T)
    trace = (fixed * waves).sum() / space_group.order
    return round(trace.real)


@dataclass(frozen=True)
class StarTable:
    """Allowed stars of a space group, Friedel mates joined; rows of equal length, padded.

    **Attributes** (S stars, W members of the largest):

    - `miller`: integers (S, W, 3); one of every pair k, -k; zero where padded.
    - `phase`: integers (S, W), in 1/48 of a turn; the wave of a member is exp(2πi (m·x + phase/48)).
    - `members`: integers (S,), how many of the W entries are used.
    - `multiplicity`: integers (S,), size of the star of k0 under the point group.
    - `epsilon`: integers (S,), operators of the group that leave k0 unchanged.
    - `centric`: booleans (S,).
    """

    space_group: SpaceGroup
    miller: np.ndarray
    phase: np.ndarray
    members: np.ndarray
    multiplicity: np.ndarray
    epsilon: np.ndarray
    centric: np.ndarray

    def __len__(self) -> int:
        return len(self.miller)

    @property
    def functions(self) -> int:
        """Number of real basis functions, which is the number of stars with k and -k counted apart."""
        return int((2 - self.centric).sum())

    @property
    def modes(self) -> int:
        """Number of Miller indices that the stars contain, k and -k counted apart."""
        return int((self.multiplicity * (2 - self.centric)).sum())

    def select(self, rows: np.ndarray) -> StarTable:
        """The stars in these rows, in this order."""
        width = int(self.members[rows].max(initial=1))
        return StarTable(
            self.space_group,
            self.miller[rows][:, :width],
            self.phase[rows][:, :width],
            self.members[rows],
            self.multiplicity[rows],
            self.epsilon[rows],
            self.centric[rows],
        )

    def frequency(self, reciprocal: np.ndarray) -> np.ndarray:
        """|k| (1/Å) of every star under a reciprocal metric that the group leaves invariant."""
        first = self.miller[:, 0]
        return np.sqrt(np.maximum(np.einsum("si,ij,sj->s", first, reciprocal, first), 0))


def build_stars(space_group: SpaceGroup, miller: np.ndarray) -> StarTable:
    """Stars of a set of Miller indices (M, 3), which the group must map to itself.

    Raises `ValueError` when the set cuts a star: truncate by |k| under a symmetrised metric instead.
    """
    miller = np.asarray(miller, np.int64).reshape(-1, 3)
    shift = space_group.centring_translations
    miller = miller[((miller @ shift.T) % DENOMINATOR == 0).all(1)]  # centring extinctions
    rotations, first = np.unique(space_group.rotations.reshape(-1, 9), axis=0, return_index=True)
    rotations = rotations.reshape(-1, 3, 3)
    translations = space_group.translations[first]

    bound = 1 + 3 * int(np.abs(rotations).max()) * int(np.abs(miller).max(initial=0))
    base = 2 * bound + 1
    weights = np.array([base * base, base, 1], np.int64)

    # the largest image among ±Rᵀk stands for the whole star
    codes = (miller[None] @ rotations) @ weights  # (P, M)
    canonical = np.abs(codes).max(0)
    star_codes = np.unique(canonical)
    present = np.sort(miller @ weights)
    found = np.searchsorted(present, star_codes).clip(max=max(len(present) - 1, 0))
    digits = star_codes[:, None] + (bound * weights).sum()
    k0 = np.concatenate([digits // base**2, digits // base % base, digits % base], axis=1) - bound  # (S, 3)
    if len(miller) and not (present[found] == star_codes).all():
        raise ValueError(
            "the set of Miller indices is not closed under the group; choose them by |k| (whole stars only)"
        )

    images = k0[None] @ rotations  # (P, S, 3)
    turns = (k0 @ translations.T).T  # (P, S), 24ths
    codes = images @ weights
    own = star_codes[None]
    fixed = codes == own
    allowed = ~(fixed & (turns % DENOMINATOR != 0)).any(0)
    k0, images, turns, codes, fixed = (
        k0[allowed],
        images[:, allowed],
        turns[:, allowed],
        codes[:, allowed],
        fixed[:, allowed],
    )
    own = own[:, allowed]

    inverted = codes == -own
    centric = inverted.any(0)
    # w_{-k0} = exp(iθ) in 24ths; multiplying the star by exp(-iθ/2) makes its function real
    theta = np.take_along_axis(turns, inverted.argmax(0)[None], 0)[0] * centric
    phase = (2 * turns - theta) % PHASE_DENOMINATOR  # 48ths

    order = np.argsort(codes, axis=0, kind="stable")
    codes, phase = np.take_along_axis(codes, order, 0), np.take_along_axis(phase, order, 0)
    images = np.take_along_axis(images, order[..., None], 0)
    keep = np.ones_like(codes, bool)
    keep[1:] = codes[1:] != codes[:-1]
    multiplicity = keep.sum(0)
    if len(miller) != int((multiplicity * (2 - centric)).sum()) + _absent_size(space_group, miller):
        raise ValueError(
            "the set of Miller indices is not closed under the group; choose them by |k| (whole stars only)"
        )
    keep &= ~centric | (codes >= 0)  # one of m, -m
    members = keep.sum(0)

    width = int(members.max(initial=1))
    slots = np.argsort(~keep, axis=0, kind="stable")[:width]
    used = np.take_along_axis(keep, slots, 0)
    table_miller = np.where(used[..., None], np.take_along_axis(images, slots[..., None], 0), 0)
    table_phase = np.where(used, np.take_along_axis(phase, slots, 0), 0)
    table = StarTable(
        space_group,
        np.ascontiguousarray(table_miller.transpose(1, 0, 2)),
        np.ascontiguousarray(table_phase.T),
        members,
        multiplicity,
        fixed.sum(0) * len(shift),
        centric | (own[0] == 0),
    )
    return table


def _absent_size(space_group: SpaceGroup, miller: np.ndarray) -> int:
    return int(classify(space_group, miller).absent.sum())


def stars_within(space_group: SpaceGroup, lattice: np.ndarray, cutoff: float) -> StarTable:
    """All allowed stars with |k| <= cutoff (1/Å), in order of |k|.

    **Arguments:**

    - `lattice`: rows a, b, c (Å) of the cell that the operators act in.
    - `cutoff`: largest |k| in 1/Å, without 2π. A cut-off of 1/(2 d) resolves details of size d.
    """
    metric = symmetrise_metric(space_group, metric_of(lattice))
    return _sorted_stars(space_group, metric.tobytes(), float(cutoff))


def first_stars(space_group: SpaceGroup, lattice: np.ndarray, count: int) -> StarTable:
    """The `count` allowed stars of smallest |k|, so that Fm-3m gets as many functions as P1.

    Stars of equal |k| enter together or not at all, so fewer than `count` may come back: a selection inside a
    shell would depend on how the cell is described.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    metric = symmetrise_metric(space_group, metric_of(lattice))
    reciprocal = reciprocal_metric(metric)
    volume = np.sqrt(np.linalg.det(metric)) / len(space_group.centring_translations)
    laue = space_group.point_group_order * (1 if space_group.is_centrosymmetric else 2)
    cutoff = (3 * laue * count / (4 * np.pi * volume)) ** (1 / 3)
    while True:
        table = _sorted_stars(space_group, metric.tobytes(), float(cutoff))
        if len(table) > count:
            break
        cutoff *= 1.15
    frequency = table.frequency(reciprocal)
    return table.select(np.flatnonzero(frequency < frequency[count] * (1 - 1e-6)))


@lru_cache(maxsize=4096)
def _sorted_stars(space_group: SpaceGroup, metric: bytes, cutoff: float) -> StarTable:
    reciprocal = reciprocal_metric(np.frombuffer(metric).reshape(3, 3))
    table = build_stars(space_group, miller_ball(reciprocal, cutoff))
    frequency = table.frequency(reciprocal)
    return table.select(np.lexsort((np.arange(len(table)), np.round(frequency / cutoff, 9))))


def index_ball(radius: int = 5) -> np.ndarray:
    """Miller indices with 0 < h² + k² + l² <= radius², whatever the metric: 514 modes for radius 5."""
    grid = np.indices((2 * radius + 1,) * 3).reshape(3, -1).T - radius
    squared = (grid**2).sum(1)
    return grid[(squared <= radius**2) & (squared > 0)]
