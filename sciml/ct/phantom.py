"""Objects of ellipses and boxes with closed-form line integrals, so that data owe nothing to a pixel grid.

A phantom is a sum of shapes with constant attenuation; `sinogram` integrates it along the lines of any
geometry, `raster` averages it over pixels. The named ones (`PHANTOMS`) lie within the unit circle; `scaled`
brings them to the size of a scan. Noise is added by `with_gaussian_noise` and `with_poisson_noise`.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.ct.geometry import AbstractGeometry
from sciml.ct.grid import ImageGrid
from sciml.typing import Key, ScalarLike


class AbstractShape(eqx.Module):
    """A region of constant attenuation, turned by an angle about its centre."""

    centre: eqx.AbstractVar[tuple[ScalarLike, ScalarLike]]
    size: eqx.AbstractVar[tuple[ScalarLike, ScalarLike]]
    value: eqx.AbstractVar[ScalarLike]
    angle: eqx.AbstractVar[ScalarLike]

    @abc.abstractmethod
    def integral(self, l0: Array, l1: Array, l2: Array) -> Array:
        """Line integral along l₀x + l₁y + l₂ = 0 with l₀² + l₁² = 1 [attenuation x length]."""

    @abc.abstractmethod
    def contains(self, x: Array, y: Array) -> Array:
        """Whether points lie inside."""


def _local(shape: AbstractShape, x: Array, y: Array) -> tuple[Array, Array]:
    """Components of vectors along the axes of a shape."""
    cos, sin = jnp.cos(shape.angle), jnp.sin(shape.angle)
    return cos * x + sin * y, cos * y - sin * x


def _distance(shape: AbstractShape, l0: Array, l1: Array, l2: Array) -> Array:
    return abs(l0 * shape.centre[0] + l1 * shape.centre[1] + l2)


class Ellipse(AbstractShape):
    """An ellipse: ∫ = 2ab √(r² - s²) / r² with s the distance of the line and r² = (a n₁)² + (b n₂)².

    Args:
        centre: (x, y) [length].
        size: semi-axes (a, b) [length].
        value: attenuation [1/length].
        angle: of the first semi-axis from the x-axis, counter-clockwise [rad]; default 0.
    """

    centre: tuple[ScalarLike, ScalarLike]
    size: tuple[ScalarLike, ScalarLike]
    value: ScalarLike
    angle: ScalarLike = 0.0

    def integral(self, l0, l1, l2):
        n1, n2 = _local(self, l0, l1)
        a, b = self.size
        reach = (a * n1) ** 2 + (b * n2) ** 2
        inside = reach - _distance(self, l0, l1, l2) ** 2
        root = jnp.sqrt(jnp.where(inside > 0, inside, 1))
        return jnp.where(inside > 0, 2 * a * b * root / reach, 0) * self.value

    def contains(self, x, y):
        p, q = _local(self, x - self.centre[0], y - self.centre[1])
        return (p / self.size[0]) ** 2 + (q / self.size[1]) ** 2 <= 1


class Box(AbstractShape):
    """A rectangle: its projection is a trapezoid.

    ∫ = H·clip((a - s)/(a - b), 0, 1) with s the distance of the line from the centre, sides p = |w n₁| and
    q = |h n₂| as the detector sees them, a = (p + q)/2, b = |p - q|/2 and H = w h / max(p, q).

    Args:
        centre: (x, y) [length].
        size: sides (w, h) [length].
        value: attenuation [1/length].
        angle: of the first side from the x-axis, counter-clockwise [rad]; default 0.
    """

    centre: tuple[ScalarLike, ScalarLike]
    size: tuple[ScalarLike, ScalarLike]
    value: ScalarLike
    angle: ScalarLike = 0.0

    def integral(self, l0, l1, l2):
        n1, n2 = _local(self, l0, l1)
        w, h = self.size
        p, q = abs(w * n1), abs(h * n2)
        larger, smaller = jnp.maximum(p, q), jnp.minimum(p, q)
        tiny = 4 * jnp.finfo(larger.dtype).eps * larger
        rise = ((larger + smaller) / 2 - _distance(self, l0, l1, l2)) / jnp.maximum(smaller, tiny)
        return self.value * w * h / larger * jnp.clip(rise, 0, 1)

    def contains(self, x, y):
        p, q = _local(self, x - self.centre[0], y - self.centre[1])
        return (abs(p) <= self.size[0] / 2) & (abs(q) <= self.size[1] / 2)


class Phantom(eqx.Module):
    """A sum of shapes.

    Args:
        shapes: the shapes; values add where they overlap, so a hole is a shape of negative value.
    """

    shapes: tuple[AbstractShape, ...]

    def __init__(self, shapes: Sequence[AbstractShape]):
        self.shapes = tuple(shapes)

    def sinogram(self, geometry: AbstractGeometry, *, samples: int = 1) -> Float[Array, "views bins"]:
        """Line integrals, averaged over `samples` lines across the width of every bin (1: its middle)."""
        dtype = geometry.angles.dtype
        inside = (np.arange(samples) + 0.5) / samples - 0.5
        bins = jnp.asarray(np.arange(geometry.bins)[:, None] + inside, dtype)

        def one(view):
            line = view.line(bins)
            return sum((shape.integral(*line) for shape in self.shapes), jnp.zeros_like(bins)).mean(-1)

        return jax.lax.map(one, geometry.scanner())

    def raster(self, grid: ImageGrid, *, samples: int = 8) -> Float[np.ndarray, "rows columns"]:
        """Averages over pixels, from `samples`² points in each (float64)."""
        inside = ((np.arange(samples) + 0.5) / samples - 0.5) * grid.pixel
        total = np.zeros(grid.shape)
        for dx in inside:
            for dy in inside:
                x, y = np.meshgrid(grid.x + dx, grid.y + dy)
                for shape in self.shapes:
                    total += np.asarray(shape.contains(x, y)) * np.asarray(shape.value)
        return total / samples**2

    def turned(self, angle: float) -> Self:
        """The phantom turned counter-clockwise about the rotation axis by an angle [rad]."""
        cos, sin = float(np.cos(angle)), float(np.sin(angle))

        def one(shape: AbstractShape) -> AbstractShape:
            x, y = shape.centre
            centre = cos * x - sin * y, sin * x + cos * y
            return type(shape)(centre, shape.size, shape.value, shape.angle + angle)  # pyright: ignore

        return type(self)([one(shape) for shape in self.shapes])

    def scaled(self, length: float, value: float = 1.0) -> Self:
        """The phantom with all lengths and all attenuations multiplied."""

        def one(shape: AbstractShape) -> AbstractShape:
            centre, size = (tuple(length * part for part in pair) for pair in (shape.centre, shape.size))
            return type(shape)(centre, size, value * shape.value, shape.angle)  # pyright: ignore

        return type(self)([one(shape) for shape in self.shapes])


def with_gaussian_noise(sinogram: Array, relative: float, *, key: Key) -> Array:
    """Adds normal noise whose standard deviation is a fraction of the largest line integral."""
    return sinogram + relative * sinogram.max() * jax.random.normal(key, sinogram.shape, sinogram.dtype)


def with_poisson_noise(sinogram: Array, photons: float, *, key: Key) -> Array:
    """The line integrals -log(N/N₀) of counts N ~ Poisson(N₀ exp(-p)); none counts as half of one."""
    counts = jax.random.poisson(key, photons * jnp.exp(-sinogram)).astype(sinogram.dtype)
    return -jnp.log(jnp.maximum(counts, 0.5) / photons)


# ------------------------------------------------------------------------------------------ named phantoms


def disc() -> Phantom:
    """One disc of radius 0.6."""
    return Phantom([Ellipse((0.1, -0.05), (0.6, 0.6), 1.0)])


def shepp_logan() -> Phantom:
    """The Shepp-Logan head with the contrasts of Toft (1996); values from 0 to 1."""
    rows = (
        (0.0, 0.0, 0.69, 0.92, 1.0, 0),
        (0.0, -0.0184, 0.6624, 0.874, -0.8, 0),
        (0.22, 0.0, 0.11, 0.31, -0.2, -18),
        (-0.22, 0.0, 0.16, 0.41, -0.2, 18),
        (0.0, 0.35, 0.21, 0.25, 0.1, 0),
        (0.0, 0.1, 0.046, 0.046, 0.1, 0),
        (0.0, -0.1, 0.046, 0.046, 0.1, 0),
        (-0.08, -0.605, 0.046, 0.023, 0.1, 0),
        (0.0, -0.605, 0.023, 0.023, 0.1, 0),
        (0.06, -0.605, 0.023, 0.046, 0.1, 0),
    )
    return Phantom([Ellipse((x, y), (a, b), value, np.deg2rad(turn)) for x, y, a, b, value, turn in rows])


def hollow_square(degrees: float = 23.0) -> Phantom:
    """The section of a hollow cube, turned."""
    turn = float(np.deg2rad(degrees))
    return Phantom([Box((0.02, -0.03), (1.1, 1.1), 1.0, turn), Box((0.02, -0.03), (0.75, 0.75), -1.0, turn)])


def slotted_blocks() -> Phantom:
    """Slanted blocks with slots."""
    blocks = (
        ((-0.35, 0.3), (0.6, 0.45), 1.0, 15, ((0.25, 0.06), (0.06, 0.3))),
        ((0.4, 0.35), (0.4, 0.55), 0.8, -20, ((0.2, 0.07),)),
        ((0.1, -0.4), (0.9, 0.35), 0.9, 6, ((0.08, 0.22), (0.3, 0.05))),
    )
    shapes: list[AbstractShape] = []
    for centre, size, value, degrees, slots in blocks:
        turn = float(np.deg2rad(degrees))
        shapes.append(Box(centre, size, value, turn))
        for number, slot in enumerate(slots):
            along = (number - (len(slots) - 1) / 2) * 0.5 * size[0]
            place = centre[0] + along * np.cos(turn), centre[1] + along * np.sin(turn)
            shapes.append(Box((float(place[0]), float(place[1])), slot, -value, turn))
    return Phantom(shapes)


def bored_block() -> Phantom:
    """A slanted block with round bores and a slot."""
    turn = float(np.deg2rad(12))
    shapes: list[AbstractShape] = [Box((0.0, 0.0), (1.2, 0.9), 1.0, turn)]
    shapes += [
        Ellipse(centre, (radius, radius), -1.0)
        for centre, radius in (((-0.35, 0.1), 0.16), ((0.3, 0.25), 0.1), ((0.25, -0.2), 0.13))
    ]
    return Phantom([*shapes, Box((-0.1, -0.25), (0.3, 0.08), -1.0, turn)])


def curved_part() -> Phantom:
    """Rings that are not concentric, and ellipses."""
    ring = [Ellipse((0.0, 0.0), (0.75, 0.75), 1.0), Ellipse((0.12, 0.05), (0.58, 0.58), -1.0)]
    inner = [Ellipse((0.15, 0.1), (0.3, 0.3), 0.8), Ellipse((0.1, 0.1), (0.2, 0.2), -0.8)]
    small = [Ellipse((-0.2, -0.25), (0.15, 0.07), 0.6, 0.5), Ellipse((0.3, -0.25), (0.1, 0.05), 0.9, -0.7)]
    return Phantom([*ring, *inner, *small])


PHANTOMS: dict[str, Callable[[], Phantom]] = {
    "disc": disc,
    "shepp-logan": shepp_logan,
    "hollow-square": hollow_square,
    "slotted-blocks": slotted_blocks,
    "bored-block": bored_block,
    "curved-part": curved_part,
}
