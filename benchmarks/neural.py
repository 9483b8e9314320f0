"""Speed of a neural flux against the form that comes to mind first, in one run.

    python -m benchmarks.neural [--repeats 5] [--out neural.json]

The peer is the same network as channels-last convolutions (`lax.conv_general_dilated`, NWC) with `jax.nn.elu`
on the whole batch. Both advance 64 roads of 100 cells by 50 steps of the two-cell network, forward and with
the gradient of a loss over the trajectory; memory is what XLA reserves for temporaries. Rates are cell
updates per second.
"""

import argparse
import os
import time

os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(len(os.sched_getaffinity(0))))

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.alternate import alternate, rows, show, timed, write
from sciml.fv.boundary import Outflow
from sciml.fv.finite_volume import FiniteVolume
from sciml.fv.fundamental_diagram import Greenshields
from sciml.fv.grid import UniformGrid
from sciml.fv.integrate import ensemble, rollout
from sciml.fv.neural_flux import NeuralFlux

BATCH, CELLS, STEPS, DT_DX = 64, 100, 50, 0.1
LAW = Greenshields()  # pyright: ignore


def one(flux, u0):
    """Mean square of the states of one road's rollout through the library."""
    scheme = FiniteVolume(LAW, UniformGrid(CELLS), Outflow(), numerical_flux=flux)
    found = rollout(scheme, u0, DT_DX / CELLS, STEPS, throw=False)
    return jnp.mean(found.states[1:] ** 2)


def ours(flux, u0):
    """All roads in chunks of 16, as in training."""
    return jnp.mean(jax.lax.map(lambda u: one(flux, u), u0, batch_size=16))


def ours_on_all_cores(flux, u0):
    """All roads in chunks of 16, shared between the cores."""
    return jnp.mean(ensemble(lambda u: one(flux, u), u0, chunk=16))


def naive(flux, u0):
    """The same with channels-last convolutions over the whole batch."""
    layers = list(zip(flux.weights, flux.biases, strict=True))

    def network(u):
        x = ((u - flux.centre) / flux.half_width)[..., None]
        for index, (weight, bias) in enumerate(layers):
            kernel = weight.reshape(weight.shape[0], -1, 1 if index == 0 else weight.shape[1])
            kernel = kernel.transpose(1, 2, 0)
            x = jax.lax.conv_general_dilated(
                x, kernel, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
            )
            x = x + bias
            x = jax.nn.elu(x) if index < len(layers) - 1 else x
        return (flux.flux_range[1] - flux.flux_range[0]) * x[..., 0]

    def step(u, _):
        padded = jnp.concatenate([u[:, :1], u, u[:, -1:]], axis=1)
        fluxes = network(padded)
        u = u - DT_DX * (fluxes[:, 1:] - fluxes[:, :-1])
        return u, u

    return jnp.mean(jax.lax.scan(step, u0, None, length=STEPS)[1] ** 2)


def candidate(function, *arguments):
    """A timed function, the seconds of its first call and the temporary memory in MiB."""
    begun = time.perf_counter()
    made = eqx.filter_jit(function)
    memory = made.lower(*arguments).compile().compiled.memory_analysis()
    jax.block_until_ready(made(*arguments))
    first = time.perf_counter() - begun
    return timed(lambda: jax.block_until_ready(made(*arguments))), first, memory.temp_size_in_bytes / 2**20


def main():
    parser = argparse.ArgumentParser(description="Speed of a neural flux")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", help="write the figures as JSON")
    options = parser.parse_args()
    results: dict[str, object] = {}
    u0 = jnp.asarray(np.random.default_rng(0).random((BATCH, CELLS)), jnp.float32)
    flux = NeuralFlux(law=LAW, key=jax.random.key(0))
    a, b = (float(f(flux, u0)) for f in (ours, naive))
    assert abs(a - b) < 1e-5 * abs(a), f"the two forms differ: {a} and {b}"
    for title, wrap, mine in (
        ("rollout", lambda f: f, ours_on_all_cores),
        ("rollout and gradient", eqx.filter_value_and_grad, ours),
    ):
        candidates, compiled, memory = {}, {}, {}
        for label, function in (("sciml", mine), ("channels-last convolution", naive)):
            candidates[label], compiled[label], memory[label] = candidate(wrap(function), flux, u0)
        work = dict.fromkeys(candidates, float(BATCH * CELLS * STEPS))
        table = rows(alternate(candidates, options.repeats), work, "sciml", compiled)
        for row in table:
            row["memory_mib"] = memory[str(row["candidate"])]
        show(title, table, "updates/s")
        print("temporary memory: " + ", ".join(f"{k} {v:.1f} MiB" for k, v in memory.items()))
        results[title] = table
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
