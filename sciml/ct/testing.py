"""Assertions about projectors, to be pointed at your own as well as at those of the library.

`assert_adjoint` checks that `backproject` is the transpose of `project`: |⟨Af, p⟩ - ⟨f, Aᵀp⟩| ≤ ε·‖Af‖·‖p‖.
"""

import jax
import jax.numpy as jnp
import numpy as np

from sciml.ct.projector import AbstractProjector
from sciml.typing import Key


def adjoint_defect(
    projector: AbstractProjector,
    image_shape: tuple[int, ...],
    sinogram_shape: tuple[int, ...],
    dtype=None,
    *,
    key: Key,
) -> float:
    """|⟨Af, p⟩ - ⟨f, Aᵀp⟩| / (‖Af‖·‖p‖) for normal random f and p; sums in float64.

    Args:
        projector: any object with `project` and `backproject`.
        image_shape: shape of f.
        sinogram_shape: shape of p.
        dtype: of f and p; default the widest that JAX is set to.
        key: PRNG key.
    """
    dtype = jax.dtypes.canonicalize_dtype(np.float64) if dtype is None else dtype
    keys = jax.random.split(key)
    f = jax.random.normal(keys[0], image_shape, dtype)
    p = jax.random.normal(keys[1], sinogram_shape, dtype)
    forward = np.asarray(projector.project(f), np.float64)
    back = np.asarray(projector.backproject(p), np.float64)
    f, p = np.asarray(f, np.float64), np.asarray(p, np.float64)
    scale = np.linalg.norm(forward) * np.linalg.norm(p)
    return float(abs((forward * p).sum() - (f * back).sum()) / scale)


def assert_adjoint(
    projector: AbstractProjector,
    image_shape: tuple[int, ...],
    sinogram_shape: tuple[int, ...],
    dtype=None,
    *,
    tolerance: float | None = None,
    key: Key,
) -> None:
    """Check that `backproject` is the exact transpose of `project`.

    Args:
        projector: any object with `project` and `backproject`.
        image_shape: shape of an image.
        sinogram_shape: shape of a sinogram.
        dtype: precision of the check; default the widest that JAX is set to.
        tolerance: largest defect allowed; default 1e-12 (float64) or 1e-6 (float32).
        key: PRNG key.

    Raises:
        AssertionError: with the defect.
    """
    defect = adjoint_defect(projector, image_shape, sinogram_shape, dtype, key=key)
    wide = jnp.dtype(jax.dtypes.canonicalize_dtype(np.float64) if dtype is None else dtype).itemsize == 8
    tolerance = (1e-12 if wide else 1e-6) if tolerance is None else tolerance
    if not defect <= tolerance:
        raise AssertionError(
            f"backproject is not the transpose of project: |<Af,p> - <f,A'p>| is {defect:.2e} of |Af||p|,"
            f" more than {tolerance:.0e}"
        )
