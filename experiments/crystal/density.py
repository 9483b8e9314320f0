"""A learned invariant density: one network for 20 space groups at once, judged on groups that it never saw.

    python experiments/crystal/density.py experiments/crystal/density.toml

The map to learn: atoms (two kinds, on random orbits) -> ρ(r) = tanh of a sum of Gaussians, positive for one
kind and negative for the other. It is nonlinear, so no convolution of the atoms is enough. In one table,
relative L2 error of the density:

    zero                the mean of the density
    linear              the best isotropic convolution of the atoms, a least-squares fit of φ(|k|): the
    classical answer network             SpaceGroupFourierNetwork, the same weights for all groups
    series (own cell)   a SymmetricFourierSeries fitted to each crystal's own density: the limit of the
    truncated basis
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from sciml.cli.arguments import open_run, parse_arguments
from sciml.crystal.fourier import stack_bases
from sciml.crystal.lattice import lattice_of, metric_of, random_metric, reciprocal_metric
from sciml.crystal.layers import SpaceGroupFourierNetwork, atom_density, radial_bumps
from sciml.crystal.space_group import SpaceGroup
from sciml.crystal.star import stars_within
from sciml.crystal.symmetrise import asymmetric_points, compatible_shape
from sciml.crystal.testing import orbit_of

TRAIN = (2, 4, 9, 14, 15, 18, 19, 29, 33, 61, 62, 76, 92, 96, 114, 136, 146, 148, 152, 176)
UNSEEN = (1, 7, 36, 60, 86, 122, 161, 167, 169, 205)


@dataclass(frozen=True)
class Config:
    """Sizes of data, network and training."""

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


def make_crystal(number: int, config: Config, rng: np.random.Generator) -> dict[str, Any]:
    """A crystal with one orbit of each kind, its density at quadrature points; None when the draw does
    not fit.
    """
    group = SpaceGroup.from_number(number).primitive()
    metric = random_metric(group, rng)
    orbits = [orbit_of(group, rng.uniform(size=(1, 3)))[:, 0] for _ in range(2)]
    atoms = np.concatenate(orbits)
    metric = metric * (config.volume * len(atoms) / np.sqrt(np.linalg.det(metric))) ** (2 / 3)
    lattice = lattice_of(metric)
    kind = np.repeat([1.0, -1.0], len(orbits[0]))
    edges = np.sqrt(np.diag(metric))
    steps = tuple(int(n) for n in np.maximum(np.rint(edges * 2.6 * config.cutoff), 4))
    where, share = asymmetric_points(group, compatible_shape(group, (steps[0], steps[1], steps[2])))
    if len(where) > config.points:
        chosen = rng.choice(
            len(where), config.points, replace=False
        )  # unbiased when the grid is finer than needed
        where, share = where[chosen], share[chosen] / share[chosen].sum()
    # the exact target, by the Fourier sum of the Gaussians over the whole cell up to where they vanish
    table = stars_within(SpaceGroup.from_number(1), lattice, 3.2 / (2 * np.pi * config.sigma) * 1.6)
    k = table.miller[:, 0]
    gauss = np.exp(-2 * (np.pi * config.sigma * table.frequency(reciprocal_metric(metric_of(lattice)))) ** 2)
    factors = (kind * np.exp(2j * np.pi * k @ atoms.T)).sum(1) * gauss * np.where(k.any(1), 2, 1)
    waves = np.exp(-2j * np.pi * where @ k.T)
    density = np.tanh(60 * np.real(waves @ factors) / np.sqrt(np.linalg.det(metric)))
    more = config.points - len(where)
    return {
        "table": stars_within(group, lattice, config.cutoff),
        "lattice": lattice,
        "atoms": atoms,
        "kind": kind,
        "where": np.pad(where, ((0, more), (0, 0))),
        "share": np.pad(share, (0, more)),
        "density": np.pad(density, (0, more)),
    }


def make_set(numbers: tuple[int, ...], count: int, config: Config, seed: int):
    """Stacked arrays of `count` crystals of every group."""
    rng = np.random.default_rng(seed)
    crystals = [make_crystal(number, config, rng) for number in numbers for _ in range(count)]
    bases = stack_bases([c["table"] for c in crystals], [c["lattice"] for c in crystals])
    most = max(len(c["atoms"]) for c in crystals)
    pad = [
        (
            np.pad(c["atoms"], ((0, most - len(c["atoms"])), (0, 0))),
            np.pad(c["kind"], (0, most - len(c["kind"]))),
        )
        for c in crystals
    ]
    kinds = np.stack([kind for _, kind in pad])
    weights = np.stack([kinds == 1, kinds == -1], axis=-1)
    arrays = [np.stack([c[key] for c in crystals]) for key in ("lattice", "where", "share", "density")]
    lattice, where, share, density = (jnp.asarray(a.astype(np.float32)) for a in arrays)
    positions = jnp.asarray(np.stack([atoms for atoms, _ in pad]).astype(np.float32))
    fields = eqx.filter_jit(eqx.filter_vmap(atom_density))(
        bases, lattice, positions, jnp.asarray(weights.astype(np.float32))
    )
    return bases, fields * config.volume, where, share, density


def relative_error(predicted, share, density):
    """Relative L2 error of each crystal over its cell."""
    return jnp.sqrt((share * (predicted - density) ** 2).sum(-1) / (share * density**2).sum(-1))


@eqx.filter_jit
def predict(network, bases, fields, where, share):
    def one(basis, given, points, weights):
        coefficients = network(basis, given, points, weights)
        return jnp.einsum("qsr,src->q", jax.vmap(basis)(points), coefficients)

    return jax.vmap(one)(bases, fields, where, share)


@eqx.filter_jit
def design(bases, fields, where, cutoff, terms=12):
    """Columns of the linear model: every kind convolved with every radial kernel, and a constant."""

    def one(basis, given, points):
        radial = radial_bumps(basis.frequency, cutoff, terms)
        columns = jnp.einsum("qsr,sp,src->qpc", jax.vmap(basis)(points), radial, given)
        return jnp.concatenate([columns.reshape(len(points), -1), jnp.ones((len(points), 1))], axis=1)

    return jax.vmap(one)(bases, fields, where)


def fit_linear(train, validation, cutoff: float) -> np.ndarray:
    """Weights of the linear model; the ridge that stabilises them is chosen on crystals of its own."""
    columns, root = (
        np.asarray(design(train[0], train[1], train[2], cutoff), float),
        np.sqrt(np.asarray(train[3], float))[..., None],
    )
    matrix = (columns * root).reshape(-1, columns.shape[-1])
    target = (np.asarray(train[4])[..., None] * root).reshape(-1)
    gram, scale = matrix.T @ matrix, np.trace(matrix.T @ matrix) / columns.shape[-1]
    test = np.asarray(design(validation[0], validation[1], validation[2], cutoff), float)

    def error(ridge: float) -> tuple[float, np.ndarray]:
        weights = np.linalg.solve(gram + ridge * scale * np.eye(len(gram)), matrix.T @ target)
        return float(relative_error(jnp.asarray(test @ weights), *validation[3:]).mean()), weights

    return min((error(10.0**power) for power in range(-9, 1)), key=lambda pair: pair[0])[1]


@eqx.filter_jit
def waves_of(bases, where):
    return jax.vmap(lambda basis, points: jax.vmap(basis)(points))(bases, where)


def series_error(data) -> np.ndarray:
    """Error of the least-squares SymmetricFourierSeries of every crystal."""
    bases, _, where, share, density = data
    waves = np.asarray(waves_of(bases, where), float).reshape(*where.shape[:2], -1)
    errors = []
    for matrix, weight, target in zip(waves, np.asarray(share), np.asarray(density), strict=True):
        root = np.sqrt(weight)
        solution = np.linalg.lstsq(matrix * root[:, None], target * root, rcond=1e-8)[0]
        errors.append(float(relative_error(matrix @ solution, weight, target)))
    return np.array(errors)


def main(argv: list[str]) -> int:
    config, options, path = parse_arguments(argv, Config, command="crystal density")
    with open_run(options, config, f"crystal-{path.stem if path else 'density'}") as run:
        train = make_set(config.train, config.crystals, config, config.seed)
        sets = {
            "trained groups, new crystals": make_set(config.train, 2, config, config.seed + 1),
            "unseen groups": make_set(config.unseen, 4, config, config.seed + 2),
        }
        linear = fit_linear(train, make_set(config.train, 2, config, config.seed + 3), config.cutoff)
        network = SpaceGroupFourierNetwork(
            2, 1, config.cutoff, config.width, config.depth, key=jax.random.key(config.seed)
        )
        schedule = optax.cosine_decay_schedule(config.rate, config.steps)
        optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
        state = optimiser.init(eqx.filter(network, eqx.is_inexact_array))

        @eqx.filter_jit
        def step(network, state, batch):
            def loss(network):
                bases, fields, where, share, density = batch
                errors = share * (predict(network, bases, fields, where, share) - density) ** 2
                return errors.sum(-1).mean()

            value, gradient = eqx.filter_value_and_grad(loss)(network)
            updates, state = optimiser.update(gradient, state)
            return eqx.apply_updates(network, updates), state, value

        rng = np.random.default_rng(config.seed)
        size = len(config.train) * config.crystals
        started = time.perf_counter()
        for number in range(config.steps):
            rows = rng.choice(size, min(config.batch, size), replace=False)
            network, state, value = step(network, state, jax.tree.map(lambda a: a[rows], train))  # noqa: B023
            if number % 50 == 0 or number == config.steps - 1:
                run.log({"step": number, "loss": float(value), "seconds": time.perf_counter() - started})
                print(f"step {number:5d}  loss {float(value):.5f}", flush=True)

        table = {}
        for label, data in {"training crystals": train, **sets}.items():
            bases, fields, where, share, density = data
            fitted = np.asarray(design(bases, fields, where, config.cutoff), float) @ linear
            mean = (share * density).sum(-1, keepdims=True) * jnp.ones_like(density)
            table[label] = {
                "crystals": len(density),
                "mean of the density": float(relative_error(mean, share, density).mean()),
                "linear": float(relative_error(jnp.asarray(fitted), share, density).mean()),
                "network": float(relative_error(predict(network, *data[:4]), share, density).mean()),
                "series (own cell)": float(series_error(data).mean()),
            }
            print(label, {k: round(v, 4) for k, v in table[label].items()})
        run.write_metrics(table)
        eqx.tree_serialise_leaves(run.checkpoints / "network.eqx", network)
        print(f"written to {run.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
