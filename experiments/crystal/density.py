"""A learned invariant density: shared weights for cells of 20 groups at once, judged on groups never seen.

    python experiments/crystal/density.py experiments/crystal/density.toml --out runs/density

The map to learn: atoms (two kinds, on random orbits) -> ρ(r) = tanh of a sum of Gaussians, positive for one
kind and negative for the other. It is nonlinear, so no convolution of the atoms is enough. One table, mean
relative L2 error over crystals, and the largest |f(Rx + t) - f(x)| over the root mean square of f:

    mean                          the mean of the density of that crystal
    series                        a SymmetricFourierSeries whose coefficients are one shared φ(|k|) times the
                                  structure factors, by least squares: the best isotropic convolution
    network                       SpaceGroupFourierNetwork
    no symmetry                   the same network on plain waves, as many as there are functions in the
                                  symmetric basis
    limit of the basis            the density's own projection: what no function in the basis can beat

All see the same crystals, batches and points of the loss.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.cli.arguments import open_run, parse_arguments
from sciml.crystal.fourier import FourierBasis, SymmetricFourierSeries, stack_bases
from sciml.crystal.lattice import lattice_of, metric_of, random_metric, reciprocal_metric
from sciml.crystal.layers import SpaceGroupFourierNetwork, atom_density, radial_bumps
from sciml.crystal.space_group import SpaceGroup
from sciml.crystal.star import first_stars, stars_within
from sciml.crystal.symmetrise import asymmetric_points, compatible_shape, grid_points
from sciml.crystal.testing import orbit_of
from sciml.plot import COLOURS, figure, style
from sciml.train.fit import Training, fit
from sciml.train.optimiser import Optimiser, Stage
from sciml.train.state import TrainState

TRAIN = (2, 4, 9, 14, 15, 18, 19, 29, 33, 61, 62, 76, 92, 96, 114, 136, 146, 148, 152, 176)
UNSEEN = (1, 7, 36, 60, 86, 122, 161, 167, 169, 205)
PLAIN = SpaceGroup.from_number(1)


@dataclass(frozen=True)
class Config:
    """Sizes of data, networks and training."""

    train: tuple[int, ...] = field(default=TRAIN, metadata={"doc": "space groups of the training crystals"})
    unseen: tuple[int, ...] = field(default=UNSEEN, metadata={"doc": "space groups that are only evaluated"})
    crystals: int = field(default=4, metadata={"doc": "training crystals of each group"})
    cutoff: float = field(default=0.42, metadata={"doc": "of the basis in 1/Å"})
    volume: float = field(default=26.0, metadata={"doc": "volume per atom in Å³"})
    sigma: float = field(default=0.9, metadata={"doc": "width of the Gaussians in Å"})
    width: int = 16
    depth: int = 2
    steps: int = 600
    batch: int = 8
    rate: float = 4e-3
    points: int = field(default=160, metadata={"doc": "quadrature points per crystal"})
    seed: int = 0


# --- data ---------------------------------------------------------------------------------------------------


class View(eqx.Module):
    """Crystals of one data set in one kind of basis: what a network needs. Stacked."""

    basis: FourierBasis
    field: Float[Array, "crystals stars 2 kinds"]
    points: Float[Array, "crystals points 3"]
    share: Float[Array, "crystals points"]


@dataclass(frozen=True)
class Crystals:
    """One data set: its views by name, and the density at the points of the loss."""

    groups: list[SpaceGroup]
    lattices: list[np.ndarray]
    atoms: list[np.ndarray]
    kinds: list[np.ndarray]
    views: dict[str, View]
    density: Array


def exact_density(lattice, atoms, kind, points, config: Config) -> np.ndarray:
    """The target, by the Fourier sum of the Gaussians up to where they vanish."""
    table = stars_within(PLAIN, lattice, 3.2 / (2 * np.pi * config.sigma) * 1.6)
    k, reciprocal = table.miller[:, 0], reciprocal_metric(metric_of(lattice))
    gauss = np.exp(-2 * (np.pi * config.sigma * table.frequency(reciprocal)) ** 2)
    factors = (kind * np.exp(2j * np.pi * k @ atoms.T)).sum(1) * gauss * np.where(k.any(1), 2, 1)
    waves = np.exp(-2j * np.pi * points @ k.T)
    return np.tanh(60 * np.real(waves @ factors) / abs(np.linalg.det(lattice)))


def make_crystals(numbers: tuple[int, ...], count: int, config: Config, seed: int) -> Crystals:
    """`count` crystals of every group, one random orbit of each kind."""
    rng = np.random.default_rng(seed)
    groups = [SpaceGroup.from_number(number).primitive() for number in numbers for _ in range(count)]
    lattices, atoms, kinds, grids = [], [], [], []
    for group in groups:
        metric = random_metric(group, rng)
        orbits = [orbit_of(group, rng.uniform(size=(1, 3)))[:, 0] for _ in range(2)]
        atoms.append(np.concatenate(orbits))
        kinds.append(np.repeat([1.0, -1.0], len(orbits[0])))
        scale = (config.volume * len(atoms[-1]) / np.sqrt(np.linalg.det(metric))) ** (2 / 3)
        lattices.append(lattice_of(metric * scale))
        edges = np.sqrt(np.diag(metric * scale))
        n1, n2, n3 = (int(n) for n in np.maximum(np.rint(edges * 2.6 * config.cutoff), 4))
        where, share = asymmetric_points(group, compatible_shape(group, (n1, n2, n3)))
        if len(where) > config.points:  # the grid of some groups is finer than needed
            chosen = rng.choice(len(where), config.points, replace=False)
            where, share = where[chosen], share[chosen] / share[chosen].sum()
        grids.append((where, share))
    density = [
        exact_density(lattice, x, kind, where, config)
        for lattice, x, kind, (where, _) in zip(lattices, atoms, kinds, grids, strict=True)
    ]
    symmetric = [stars_within(g, lattice, config.cutoff) for g, lattice in zip(groups, lattices, strict=True)]
    plain = [
        first_stars(PLAIN, lattice, -(-table.functions // 2))
        for table, lattice in zip(symmetric, lattices, strict=True)
    ]
    cell = grid_points((5, 5, 5)).reshape(-1, 3), np.full(125, 1 / 125)
    views = {
        "symmetric": _view(symmetric, lattices, atoms, kinds, grids, config),
        "plain": _view(plain, lattices, atoms, kinds, [cell] * len(groups), config),
    }
    return Crystals(groups, lattices, atoms, kinds, views, _stack(density, np.float32))


def _stack(arrays: list[np.ndarray], dtype) -> Array:
    most = max(len(a) for a in arrays)
    padded = [np.pad(a, ((0, most - len(a)),) + ((0, 0),) * (a.ndim - 1)) for a in arrays]
    return jnp.asarray(np.stack(padded).astype(dtype))


def _view(tables, lattices, atoms, kinds, quadrature, config: Config) -> View:
    basis = stack_bases(tables, lattices)
    weights = _stack([np.stack([kind == 1, kind == -1], axis=1) for kind in kinds], np.float32)
    arrays = jnp.asarray(np.stack(lattices).astype(np.float32)), _stack(atoms, np.float32), weights
    fields = eqx.filter_jit(eqx.filter_vmap(atom_density))(basis, *arrays) * config.volume
    points, share = (_stack([pair[i] for pair in quadrature], np.float32) for i in (0, 1))
    return View(basis, fields, points, share)


# --- models -------------------------------------------------------------------------------------------------


def weights_of(network) -> int:
    """Number of trained weights."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array)))


@eqx.filter_jit
def predict(network, view: View, where: Array) -> Array:
    """Predicted density of each crystal at points (crystals, points, 3)."""

    def one(view: View, points: Array) -> Array:
        coefficients = network(view.basis, view.field, view.points, view.share)
        return jnp.einsum("qsr,src->q", jax.vmap(view.basis)(points), coefficients)

    return jax.vmap(one)(view, where)


def train(network, data: Crystals, view: str, config: Config, log: Callable):
    """Fits a network to all crystals of a view."""
    points = data.views["symmetric"]
    rows = (data.views[view], points.points, points.share, data.density)

    def loss(network, batch, key):
        view, where, share, density = batch
        return (share * (predict(network, view, where) - density) ** 2).sum(-1).mean(), {}

    def batch(update: int):
        rng = np.random.default_rng([config.seed, update])
        chosen = rng.choice(len(data.density), min(config.batch, len(data.density)), replace=False)
        return jax.tree.map(lambda leaf: leaf[chosen], rows)

    training = Training(Optimiser((Stage(config.steps, config.rate),)), log_every=50, checkpoint_every=0)
    state = TrainState.create(network, training.optimiser.build(), key=jax.random.key(config.seed))
    return fit(state, loss, batch, training, log=log).model


@eqx.filter_jit
def series_coefficients(view: View, weights: Array, cutoff: Array) -> Array:
    """Coefficients Σ_pc w_pc φ_p(|k|) F_c(k) plus a constant, (crystals, stars, 2); linear in the weights."""

    def one(basis: FourierBasis, given: Array) -> Array:
        radial = radial_bumps(basis.frequency, cutoff, (weights.shape[0] - 1) // 2)
        mixed = jnp.einsum("sp,src,pc->sr", radial, given, weights[1:].reshape(-1, 2))
        constant = basis.exists & (basis.frequency == 0)[:, None]
        return mixed + constant * weights[0]

    return jax.vmap(one)(view.basis, view.field)


def evaluate_series(view: View, coefficients: Array, where: Array) -> Array:
    """Values at points of every crystal's own `SymmetricFourierSeries`."""

    def one(basis: FourierBasis, c: Array, points: Array) -> Array:
        series = SymmetricFourierSeries(basis, key=jax.random.key(0))
        return jax.vmap(eqx.tree_at(lambda s: s.coefficients, series, c))(points)

    return eqx.filter_jit(jax.vmap(one))(view.basis, coefficients, where)


def fit_series(train: Crystals, validation: Crystals, cutoff: Array, terms: int = 12) -> Array:
    """Shared weights of the series by least squares; the ridge is chosen on crystals of their own."""

    def design(data: Crystals) -> np.ndarray:
        view = data.views["symmetric"]
        columns = [
            evaluate_series(view, series_coefficients(view, unit, cutoff), view.points)
            for unit in jnp.eye(1 + 2 * terms)
        ]
        return np.asarray(jnp.stack(columns, axis=-1), float)

    share = np.asarray(train.views["symmetric"].share, float)
    columns, test = design(train), design(validation)
    gram = np.einsum("bq,bqi,bqj->ij", share, columns, columns)
    right = np.einsum("bq,bqi,bq->i", share, columns, np.asarray(train.density, float))
    best = (np.inf, right)
    for power in range(-9, 1):
        ridge = 10.0**power * np.trace(gram) / len(gram)
        weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), right)
        error = float(relative_error(test @ weights, validation).mean())
        best = min(best, (error, weights), key=lambda pair: pair[0])
    return jnp.asarray(best[1].astype(np.float32))


# --- judgement ----------------------------------------------------------------------------------------------


def relative_error(predicted, data: Crystals) -> np.ndarray:
    """Relative L2 error of each crystal over its cell."""
    share, density = np.asarray(data.views["symmetric"].share), np.asarray(data.density)
    return np.sqrt((share * (predicted - density) ** 2).sum(-1) / (share * density**2).sum(-1))


def projection_error(data: Crystals) -> np.ndarray:
    """Error of the least-squares series of every crystal on its own density."""
    view = data.views["symmetric"]
    waves = np.asarray(jax.vmap(lambda b, x: jax.vmap(b)(x))(view.basis, view.points), float)
    fitted = []
    for matrix, weight, target in zip(waves, np.asarray(view.share), np.asarray(data.density), strict=True):
        matrix, root = matrix.reshape(len(target), -1), np.sqrt(weight)
        fitted.append(matrix @ np.linalg.lstsq(matrix * root[:, None], target * root, rcond=1e-8)[0])
    return relative_error(np.stack(fitted), data)


def asymmetry(values_at: Callable[[Array], Array], data: Crystals) -> float:
    """Largest |f(Rx + t) - f(x)| over crystals, operators and two points, over the rms of f there."""
    x = np.random.default_rng(5).uniform(size=(2, 3))
    images = [np.resize(orbit_of(group, x), (48, 2, 3)).reshape(-1, 3) for group in data.groups]
    values = np.asarray(values_at(jnp.asarray(np.stack(images).astype(np.float32)))).reshape(-1, 48, 2)
    return float(np.abs(values - values[:, :1]).max() / np.sqrt((values**2).mean()))


def draw(errors: dict[str, np.ndarray], data: Crystals, models: dict[str, Callable], config: Config) -> Any:
    """Errors by unseen group, and one crystal of the last of them in the plane z = 0: exact and predicted."""
    made, axes = figure(2, 1 + len(models), width=7.6, height=5.2)
    grid = axes[0, 0].get_gridspec()
    for ax in axes[0]:
        ax.remove()
    numbers = np.array([group.number for group in data.groups])
    place = np.arange(len(config.unseen))
    with style():
        top = made.add_subplot(grid[0, :])
        for i, (name, values) in enumerate(errors.items()):
            means = [values[numbers == number].mean() for number in config.unseen]
            top.plot(place, means, "osD^v"[i % 5], color=COLOURS[i], markersize=5, label=name)
        top.set_xticks(place, [f"{SpaceGroup.from_number(n).symbol}\n{n}" for n in config.unseen])
        top.set_ylabel("relative L2 error")
        top.set_ylim(0, None)
        top.legend(ncols=2, fontsize=7)
        row = len(data.groups) - 1
        side = np.linspace(0, 1, 49)
        plane = np.stack([*np.meshgrid(side, side, indexing="ij"), np.zeros((49, 49))], axis=-1)
        x, y, _ = np.moveaxis(plane @ data.lattices[row], -1, 0)
        where = jnp.asarray(np.tile(plane.reshape(1, -1, 3), (len(data.groups), 1, 1)).astype(np.float32))
        panels = {
            "exact": exact_density(
                data.lattices[row], data.atoms[row], data.kinds[row], plane.reshape(-1, 3), config
            )
        }
        panels |= {name: np.asarray(values_at(where))[row] for name, values_at in models.items()}
        for ax, (name, values) in zip(axes[1], panels.items(), strict=True):
            ax.pcolormesh(x, y, values.reshape(49, 49), cmap="RdBu_r", vmin=-1, vmax=1, shading="gouraud")
            ax.set_title(name, fontsize=7)
            ax.set_aspect("equal")
            ax.axis("off")
    return made


def main(argv: list[str]) -> int:
    config, options, path = parse_arguments(argv, Config, command="crystal density")
    with open_run(options, config, f"crystal-{path.stem if path else 'density'}") as run:
        fitted = make_crystals(config.train, config.crystals, config, config.seed)
        sets = {
            "training crystals": fitted,
            "trained groups, new crystals": make_crystals(config.train, 2, config, config.seed + 1),
            "unseen groups": make_crystals(config.unseen, 4, config, config.seed + 2),
        }
        cutoff = jnp.asarray(config.cutoff, jnp.float32)
        shared = fit_series(fitted, make_crystals(config.train, 2, config, config.seed + 3), cutoff)

        start = SpaceGroupFourierNetwork(
            2, 1, config.cutoff, config.width, config.depth, key=jax.random.key(config.seed)
        )
        trained, seconds = {}, {}
        for name, view in (("network", "symmetric"), ("no symmetry", "plain")):
            started = time.perf_counter()
            network = train(start, fitted, view, config, lambda r, name=name: run.log({"model": name, **r}))
            trained[name] = (view, network)
            seconds[name] = time.perf_counter() - started
            print(f"{name}: trained in {seconds[name]:.0f} s", flush=True)

        table: dict[str, Any] = {}
        errors: dict[str, np.ndarray] = {}
        models: dict[str, Callable[[Array], Array]] = {}
        for label, data in sets.items():
            view = data.views["symmetric"]
            coefficients = series_coefficients(view, shared, cutoff)
            models = {"series": lambda x, v=view, c=coefficients: evaluate_series(v, c, x)}
            for name, (kind, network) in trained.items():
                models[name] = lambda x, n=network, v=data.views[kind]: predict(n, v, x)
            mean = np.asarray(
                (view.share * data.density).sum(-1, keepdims=True) * jnp.ones_like(data.density)
            )
            errors = {"mean": relative_error(mean, data)}
            errors |= {name: relative_error(np.asarray(f(view.points)), data) for name, f in models.items()}
            errors["limit of the basis"] = projection_error(data)
            table[label] = {name: float(values.mean()) for name, values in errors.items()}
            table[label]["crystals"] = len(data.groups)
        residuals = {name: asymmetry(f, sets["unseen groups"]) for name, f in models.items()}
        sizes = {name: weights_of(network) for name, (_, network) in trained.items()} | {
            "series": shared.size
        }
        functions = {
            name: float(fitted.views[kind].basis.exists.sum((1, 2)).mean())
            for name, (kind, _) in trained.items()
        }
        run.write_metrics(table | {"asymmetry": residuals, "weights": sizes, "seconds": seconds})
        print(
            f"{'relative L2 error':30s}{'weights':>9s}{'functions':>10s}"
            + "".join(f"{k:>30s}" for k in table)
            + f"{'asymmetry':>11s}"
        )
        for name in errors:
            row = "".join(f"{table[label][name]:30.4f}" for label in table)
            print(
                f"{name:30s}{sizes.get(name, 0):9d}{functions.get(name, 0):10.1f}{row}"
                f"{residuals.get(name, 0):11.1e}"
            )
        kept = {name: values for name, values in errors.items() if name != "mean"}
        run.figure("density", draw(kept, sets["unseen groups"], models, config))
        eqx.tree_serialise_leaves(run.checkpoints / "network.eqx", trained["network"][1])
        print(f"written to {run.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
