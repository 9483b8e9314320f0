"""One call from a scan to an image: the methods by name, with settings that suit each of them."""

import dataclasses
import time
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sciml.ct.filtered import Filter, filtered_backprojection
from sciml.ct.geometry import AbstractGeometry
from sciml.ct.grid import ImageGrid, VolumeGrid
from sciml.ct.iterative import cgls, sart, sirt
from sciml.ct.projector import JosephProjector
from sciml.ct.total_variation import poisson_weights, tv_discrepancy, tv_held_out, tv_pdhg
from sciml.ct.volume_geometry import VolumeGeometry
from sciml.ct.volume_projector import VolumeProjector
from sciml.typing import documented

Method = Literal["fbp", "fdk", "sirt", "sart", "cgls", "tv", "pwls"]
METHODS: tuple[Method, ...] = ("fbp", "sirt", "sart", "cgls", "tv")
"""Those that suit any scan; "fdk" is another name of "fbp", "pwls" is "tv" with weights of photon noise."""
_ITERATIONS = {"sirt": 200, "sart": 10, "cgls": 15, "tv": 300, "pwls": 300}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the methods leave to the user."""

    filter: Filter = documented("window of the ramp filter (fbp, fdk)", "hann")
    iterations: int | None = documented(
        "iterations; default sirt 200, sart 10, cgls 15, tv and pwls 300 (60 per weight tried)", None
    )
    subsets: int | None = documented("subsets of the views (sart); default one per view", None)
    weight: float | None = documented("weight λ of the total variation; default chosen", None)
    choice: Literal["held-out", "discrepancy"] = documented(
        "how λ is chosen: by held-out views, or by the noise", "held-out"
    )
    noise: float | None = documented(
        "standard deviation of the line integrals (discrepancy); default estimated", None
    )
    nonnegative: bool = documented("no negative attenuation (sirt, sart, tv, pwls)", True)
    isotropic: bool = documented("differences of a pixel count together (tv, pwls)", True)
    huber: float = documented("differences below this count by their square (tv, pwls); 0 is plain", 0.0)

    def __post_init__(self):
        for name in ("iterations", "subsets"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: give at least 1")
        for name in ("weight", "noise", "huber"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} is {value}: it cannot be negative")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """An image and what it cost.

    Args:
        image: attenuation [1/length].
        residual: ‖A f - p‖ / ‖p‖.
        seconds: time, compilation included.
        extra: further numbers of the method, such as the weight that was chosen.
    """

    image: Float[np.ndarray, "*slices rows columns"]
    residual: float
    seconds: float
    extra: dict[str, Any]


def reconstruct(
    method: Method,
    sinogram: Float[np.ndarray, "views *panel"],
    geometry: AbstractGeometry | VolumeGeometry,
    grid: ImageGrid | VolumeGrid,
    settings: Settings | None = None,
) -> Outcome:
    """Reconstructs by name.

    Args:
        method: "fbp" ("fdk"), "sirt", "sart", "cgls", "tv", "pwls".
        sinogram: line integrals.
        geometry: scan geometry, in the plane or in space.
        grid: pixels of the image, or voxels.
        settings: see `Settings`; default those.
    """
    settings = settings or Settings()
    if method not in (*METHODS, "fdk", "pwls"):
        raise ValueError(f"method is {method!r}: choose one of {', '.join(METHODS)}, fdk, pwls")
    begun = time.perf_counter()
    data = jnp.asarray(sinogram, jax.dtypes.canonicalize_dtype(np.float64))
    projector = projector_of(geometry, grid)
    iterations, extra = settings.iterations or _ITERATIONS.get(method, 1), {}
    if method in ("fbp", "fdk"):
        image = _fbp(data, geometry, grid, filter=settings.filter)
    elif method == "sirt":
        image = _sirt(projector, data, iterations=iterations, nonnegative=settings.nonnegative).image
    elif method == "sart":
        options = {"iterations": iterations, "subsets": settings.subsets, "nonnegative": settings.nonnegative}
        image = _sart(projector, data, **options).image
    elif method == "cgls":
        image = _cgls(projector, data, iterations=iterations).image
    else:
        weights = poisson_weights(data) if method == "pwls" else None
        huber = jnp.asarray(settings.huber, data.dtype)
        flags: dict[str, Any] = {"nonnegative": settings.nonnegative, "isotropic": settings.isotropic}
        if settings.weight is not None:
            weight = jnp.asarray(settings.weight, data.dtype)
            result = _tv(
                projector, data, weight, weights=weights, huber=huber, iterations=iterations, **flags
            )
        else:
            flags |= {"weights": weights, "huber": huber, "iterations": -(-iterations // 5)}
            if settings.choice == "held-out" and len(data) >= 4:
                result = _tv_held_out(projector, data, **flags)
            else:
                noise = None if settings.noise is None else jnp.asarray(settings.noise, data.dtype)
                result = _tv_discrepancy(projector, data, noise=noise, **flags)
        image, extra = result.image, {"weight": float(result.weight)}
    image = np.asarray(image)
    seconds = time.perf_counter() - begun
    rest = np.asarray(_project(projector, jnp.asarray(image))) - sinogram
    return Outcome(image, float(np.linalg.norm(rest) / max(np.linalg.norm(sinogram), 1e-30)), seconds, extra)


def projector_of(
    geometry: AbstractGeometry | VolumeGeometry, grid: ImageGrid | VolumeGrid
) -> JosephProjector | VolumeProjector:
    """The projector of a scan in the plane or in space."""
    if isinstance(geometry, VolumeGeometry):
        if not isinstance(grid, VolumeGrid):
            raise ValueError("a scan in space needs a VolumeGrid")
        return VolumeProjector(geometry, grid)
    if not isinstance(grid, ImageGrid):
        raise ValueError("a scan in the plane needs an ImageGrid")
    return JosephProjector(geometry, grid)


_fbp = eqx.filter_jit(filtered_backprojection)
_sirt, _sart, _cgls = eqx.filter_jit(sirt), eqx.filter_jit(sart), eqx.filter_jit(cgls)
_tv, _tv_held_out = eqx.filter_jit(tv_pdhg), eqx.filter_jit(tv_held_out)
_tv_discrepancy = eqx.filter_jit(tv_discrepancy)
_project = eqx.filter_jit(lambda projector, image: projector.project(image))
