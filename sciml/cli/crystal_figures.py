"""Figures of the crystal package: invariant functions of ten groups, the stars of a group, residuals by
group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sciml.plot import COLOURS, figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sciml.crystal.space_group import SpaceGroup
    from sciml.crystal.testing import SettingCheck

# layer-like groups whose symmetry shows in the plane z = 0
TEN_GROUPS = (1, 3, 6, 16, 75, 81, 99, 143, 156, 168)


def invariant_functions(
    numbers: Sequence[int] = TEN_GROUPS, *, stars: int = 24, seed: int = 0, points: int = 96
) -> Figure:
    """One random invariant function for each group, on 2 x 2 cells of the plane z = 0, with the cell
    drawn.
    """
    import jax
    import jax.numpy as jnp

    from sciml.crystal.fourier import FourierBasis, SymmetricFourierSeries
    from sciml.crystal.lattice import lattice_of, random_metric
    from sciml.crystal.space_group import SpaceGroup

    rng = np.random.default_rng(seed)
    rows = 2 if len(numbers) > 5 else 1
    columns = -(-len(numbers) // rows)
    made, axes = figure(rows, columns, width=1.55 * columns, height=1.85 * rows)
    side = np.linspace(0, 2, 2 * points + 1)
    u, v = np.meshgrid(side, side, indexing="ij")
    fractional = np.stack([u, v, np.zeros_like(u)], axis=-1)
    evaluate = jax.jit(lambda series, x: jax.lax.map(jax.vmap(series), x))
    for number, ax in zip(numbers, np.atleast_1d(axes).flat, strict=False):
        group = SpaceGroup.from_number(number)
        lattice = lattice_of(random_metric(group, rng))
        basis = FourierBasis(group, lattice, stars=stars, pad_stars=stars, pad_members=24)
        series = SymmetricFourierSeries(basis, key=jax.random.key(seed + number))
        values = np.asarray(evaluate(series, jnp.asarray(fractional.astype(np.float32))))
        # a in the plane along x, b in the plane: the lattice has that form
        position = fractional @ lattice
        limit = np.abs(values).max()
        ax.pcolormesh(
            position[..., 0],
            position[..., 1],
            values,
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
            shading="gouraud",
            rasterized=True,
        )
        corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]]) @ lattice
        ax.plot(corners[:, 0], corners[:, 1], color="black", linewidth=0.8)
        ax.set_title(f"{group.symbol} ({number})")
        ax.set_aspect("equal")
        ax.axis("off")
    return made


def stars_of_group(group: SpaceGroup, lattice: np.ndarray, *, largest: int = 5) -> Figure:
    """The plane l = 0 of reciprocal space: stars share a colour, systematic absences are crosses."""
    from sciml.crystal.lattice import metric_of, miller_ball, reciprocal_metric, symmetrise_metric
    from sciml.crystal.star import build_stars, classify

    reciprocal = reciprocal_metric(symmetrise_metric(group, metric_of(lattice)))
    cutoff = largest * np.sqrt(reciprocal[0, 0])
    table = build_stars(group, miller_ball(reciprocal, cutoff))
    # Cartesian reciprocal vectors in the frame of the lattice: k = L^-1 h
    to_cartesian = np.linalg.inv(lattice)
    made, ax = figure(width=4.2, height=4.4)
    plane = miller_ball(reciprocal, cutoff)
    plane = plane[plane[:, 2] == 0]
    flags = classify(group, plane)
    absent = plane[flags.absent] @ to_cartesian.T
    with style():
        ax.scatter(
            absent[:, 0], absent[:, 1], marker="x", s=18, color="#b0b0b0", linewidths=0.8, label="absent"
        )
        shown = 0
        for row in range(len(table)):
            members = table.miller[row, : table.members[row]]
            members = np.concatenate([members, -members])
            members = members[members[:, 2] == 0]
            if len(members):
                at = members @ to_cartesian.T
                colour = COLOURS[shown % len(COLOURS)]
                marker = "osD^v"[shown // len(COLOURS) % 5]
                ax.scatter(at[:, 0], at[:, 1], s=26, color=colour, marker=marker, linewidths=0)
                shown += 1
        ax.set_aspect("equal")
        ax.set_xlabel("k$_x$ (1/Å)")
        ax.set_ylabel("k$_y$ (1/Å)")
        ax.set_title(f"{group.symbol}: stars of the plane hk0, |k| ≤ {cutoff:.2f} 1/Å")
        if len(absent):
            ax.legend(loc="upper right")
    return made


def residual_by_group(checks: Sequence[SettingCheck]) -> Figure:
    """|f(Rx + t) - f(x)| of every setting, in both precisions, with the limits."""
    from sciml.crystal.testing import FLOAT32_TOLERANCE, FLOAT64_TOLERANCE

    made, ax = figure(width=7.0, height=3.0)
    hall = [check.hall_number for check in checks]
    ax.semilogy(hall, [max(c.residual32, 1e-17) for c in checks], ".", markersize=3, label="float32")
    ax.semilogy(hall, [max(c.residual64, 1e-17) for c in checks], ".", markersize=3, label="float64")
    for limit, colour in ((FLOAT32_TOLERANCE, COLOURS[0]), (FLOAT64_TOLERANCE, COLOURS[1])):
        ax.axhline(limit, color=colour, linewidth=0.8, linestyle="--")
    ax.set_xlabel("Hall number (setting)")
    ax.set_ylabel("largest |f(Rx + t) − f(x)|")
    ax.set_ylim(1e-17, 1e-3)
    ax.legend(loc="center right", ncols=2)
    return made
