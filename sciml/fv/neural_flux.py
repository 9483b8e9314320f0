"""Neural numerical flux: a network maps the averages around a face, at one or more time levels, to its flux.

Godunov's flux is a function of the two averages at a face; here that function is learned, on `stencil` cells
and `levels` time levels. The update stays in conservation form, so mass is kept to round-off whatever the
weights; consistency, monotonicity and the entropy condition are not built in and show in the errors.

Along a line of cells the network is a chain of matrix products on arrays [channels, faces], and a batch of
lines is one longer line: several times faster than a channels-last convolution on CPUs. Its backward pass
recomputes the layers, so that a rollout stores states only.

Reference: N. Lichtlé, A. Canesse, Z. Fu, H. N. Z. Matin, M. L. Delle Monache, A. M. Bayen, (U)NFV: Supervised
and Unsupervised Neural Finite Volume Methods for Solving Hyperbolic PDEs, arXiv:2505.23702 (2025).
"""

import functools
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from sciml.fv.law import AbstractLaw
from sciml.fv.numerical_flux import AbstractNumericalFlux
from sciml.typing import Key, Scalar

Activation = Literal["elu", "relu", "tanh"]


@jax.custom_jvp
def elu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x for x > 0, else eˣ - 1; its derivative is taken from its value, so that no input need be stored."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)


@elu.defjvp
def _elu_jvp(primals, tangents):
    value = elu(*primals)
    return value, tangents[0] * (1 + jnp.minimum(value, 0))


_ACTIVATIONS = {"elu": elu, "relu": jax.nn.relu, "tanh": jnp.tanh}


def _layers(activation: Activation, parameters, x: Float[Array, "levels cells"]) -> Float[Array, " faces"]:
    weights, biases = parameters
    act = _ACTIVATIONS[activation]
    faces = x.shape[1] - weights[0].shape[1] + 1
    shifted = [x[:, k : k + faces] for k in range(weights[0].shape[1])]
    if weights[0][0].size <= 20:  # thin products cost more than a copy
        h = weights[0].reshape(len(weights[0]), -1) @ jnp.concatenate(shifted)
    else:
        products = [weights[0][:, k] @ line for k, line in enumerate(shifted)]
        h = functools.reduce(jnp.add, products)
    for weight, bias in zip(weights[1:], biases[:-1], strict=True):
        h = weight @ act(h + bias[:, None])
    return h[0] + biases[-1][0]


def _lanes(x: Float[Array, "batch levels cells"]) -> Float[Array, "levels batch*cells"]:
    """All lines of a batch end to end; windows across their ends are computed and dropped."""
    batch, levels, cells = x.shape
    return x.transpose(1, 0, 2).reshape(levels, batch * cells)


@functools.cache
def _network(activation: Activation):
    """`_layers` with a batch of lines laid end to end; differentiable in reverse mode, once."""
    forward = custom_vmap(functools.partial(_layers, activation))

    @forward.def_vmap
    def _(size, batched, parameters, x):
        if any(jax.tree.leaves(batched[0])):  # an ensemble of networks
            axes = jax.tree.map(lambda yes: 0 if yes else None, batched)
            return jax.vmap(functools.partial(_layers, activation), in_axes=tuple(axes))(parameters, x), True
        beyond = parameters[0][0].shape[1] - 1
        flux = jnp.pad(forward(parameters, _lanes(x)), (0, beyond)).reshape(size, -1)
        return flux[:, : x.shape[2] - beyond], True

    def plain_backward(parameters, x, cotangent):
        return jax.vjp(functools.partial(_layers, activation), parameters, x)[1](cotangent)

    backward = custom_vmap(plain_backward)

    @backward.def_vmap
    def _(size, batched, parameters, x, cotangent):
        axes = jax.tree.map(lambda yes: 0 if yes else None, batched)
        if any(jax.tree.leaves(batched[0])) or not (batched[1] and batched[2]):
            results = jax.vmap(plain_backward, in_axes=tuple(axes))(parameters, x, cotangent)
            return results, jax.tree.map(lambda _: True, results)
        beyond = parameters[0][0].shape[1] - 1
        laid = jnp.pad(cotangent, ((0, 0), (0, beyond))).reshape(-1)
        of_parameters, of_x = backward(parameters, _lanes(x), laid[: laid.shape[0] - beyond])
        # Weights without a batch axis get the sum over the batch: all of it stands in the first entry.
        of_parameters = jax.tree.map(
            lambda a: jnp.concatenate([a[None], jnp.zeros((size - 1, *a.shape), a.dtype)]), of_parameters
        )
        of_x = of_x.reshape(x.shape[1], size, -1).transpose(1, 0, 2)
        return (of_parameters, of_x), jax.tree.map(lambda _: True, (of_parameters, of_x))

    @jax.custom_vjp
    def network(parameters, x):
        return forward(parameters, x)

    network.defvjp(lambda p, x: (forward(p, x), (p, x)), lambda kept, g: backward(*kept, g))
    return network


class NeuralFlux(AbstractNumericalFlux):
    """F = q N((u - centre)/half_width): a network of 1 × 1 layers over the window of cells and time levels.

    Args:
        stencil: even number of cells seen by a face (a).
        levels: time levels seen, the newest first (b).
        width: hidden channels.
        depth: hidden layers, at least 1.
        activation: "elu", "relu" or "tanh".
        law: sets the scales of input and output; a law without bounds needs `interval`.
        interval: states that are mapped to [-1, 1]; default the law's admissible interval.
        flux_clamp: move fluxes into the range of f over the interval; keeps the conservation.
        state_clamp: move new states into the admissible interval; breaks the conservation.
        key: JAX random key of the weights (He initialisation; Glorot for tanh).

    Raises:
        ValueError: for an odd stencil, sizes below 1, an unknown activation or an unbounded interval.
    """

    weights: tuple[Float[Array, "out ..."], ...]
    biases: tuple[Float[Array, " out"], ...]
    centre: Scalar
    half_width: Scalar
    flux_range: Float[Array, "2"]
    stencil: int = eqx.field(static=True)
    time_levels: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    flux_clamp: bool = eqx.field(static=True)
    state_clamp: bool = eqx.field(static=True)
    fully_discrete: ClassVar[bool] = True

    def __init__(
        self,
        stencil: int = 2,
        levels: int = 1,
        width: int = 15,
        depth: int = 6,
        activation: Activation = "elu",
        *,
        law: AbstractLaw,
        interval: tuple[float, float] | None = None,
        flux_clamp: bool = False,
        state_clamp: bool = False,
        key: Key,
    ):
        if stencil < 2 or stencil % 2:
            raise ValueError(f"NeuralFlux.stencil is {stencil}: a face needs an even number of cells")
        for name, value in (("levels", levels), ("width", width), ("depth", depth)):
            if value < 1:
                raise ValueError(f"NeuralFlux.{name} is {value}: give at least 1")
        if activation not in _ACTIVATIONS:
            raise ValueError(
                f"NeuralFlux.activation is {activation!r}: choose one of {', '.join(_ACTIVATIONS)}"
            )
        lower, upper = (float(law.lower), float(law.upper)) if interval is None else interval
        if not abs(lower) + abs(upper) < float("inf"):
            raise ValueError(
                f"NeuralFlux: {type(law).__name__} admits states without bound; give the interval of states"
                " that occur"
            )
        self.stencil, self.time_levels, self.activation = stencil, levels, activation
        self.flux_clamp, self.state_clamp = flux_clamp, state_clamp
        sizes = [stencil * levels, *[width] * depth, 1]
        keys = jax.random.split(key, len(sizes) - 1)
        gain = 1.0 if activation == "tanh" else 2.0
        # A small last layer: the first fluxes then move no state out of its interval.
        scales = [(gain / size) ** 0.5 for size in sizes[:-2]] + [0.1 * (1 / sizes[-2]) ** 0.5]
        matrices = [
            scale * jax.random.normal(k, (out, size))
            for k, scale, out, size in zip(keys, scales, sizes[1:], sizes[:-1], strict=True)
        ]
        self.weights = (matrices[0].reshape(width, stencil, levels), *matrices[1:])
        self.biases = tuple(jnp.zeros(out) for out in sizes[1:])
        self.centre = jnp.asarray((lower + upper) / 2)
        self.half_width = jnp.asarray((upper - lower) / 2)
        values = law.flux(jnp.linspace(lower, upper, 1025))
        self.flux_range = jnp.stack([jnp.min(values), jnp.max(values)])
        if flux_clamp:  # from the middle of the range: nothing is learned where the clamp acts
            middle = jnp.mean(self.flux_range) / (self.flux_range[1] - self.flux_range[0])
            self.biases = (*self.biases[:-1], self.biases[-1] + middle)

    @property
    def levels(self):
        return self.time_levels

    @property
    def learned(self):
        return True

    @property
    def clamped(self):
        return self.state_clamp

    @property
    def cfl_limit(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Waves must not pass the end of the stencil within a step: half of its cells."""
        return self.stencil / 2

    @property
    def parameters(self) -> int:
        """Number of trained numbers."""
        return sum(x.size for x in (*self.weights, *self.biases))

    def __call__(self, law, window, dt_dx):
        return self.along(law, window, dt_dx)[0]

    def along(self, law, padded, dt_dx):
        lines = jnp.atleast_2d(padded)
        dtype = lines.dtype
        centre, half, flux_range = (
            jax.lax.stop_gradient(x).astype(dtype) for x in (self.centre, self.half_width, self.flux_range)
        )
        scale = flux_range[1] - flux_range[0]
        lines = (lines - centre) / half
        parameters = jax.tree.map(lambda x: x.astype(dtype), (self.weights, self.biases))
        flux = scale * _network(self.activation)(parameters, lines)
        return jnp.clip(flux, flux_range[0], flux_range[1]) if self.flux_clamp else flux


def without_offset(flux: NeuralFlux, law: AbstractLaw, points: int = 257) -> NeuralFlux:
    """The flux plus the constant that makes N(u, …, u) = f(u) on average over its interval.

    A constant changes no update, so training leaves it free; at ends where a flux is prescribed it matters.
    """
    states = flux.centre + flux.half_width * jnp.linspace(-1, 1, points)
    constant = jnp.broadcast_to(states[:, None, None], (points, flux.levels, flux.stencil))
    learned = jax.vmap(lambda window: flux(law, window, None))(constant)
    shift = jnp.mean(law.flux(states) - learned) / (flux.flux_range[1] - flux.flux_range[0])
    return eqx.tree_at(lambda f: f.biases[-1], flux, flux.biases[-1] + shift)
