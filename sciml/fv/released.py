"""Trained neural fluxes as files: weights with a card that says how they were made, and which law they serve.

A file is a NumPy archive of the weights with the card as JSON text in it. The released ones lie in the folder
`released` beside this module, named SCHEME.LAW.npz; the command line takes their scheme names, or the path of
a file of one's own, wherever it takes the name of a scheme, and with "+clamps" after either the flux with the
published clamps.
"""

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sciml.fv.law import AbstractLaw
from sciml.fv.neural_flux import NeuralFlux

CLAMPS = "+clamps"
FOLDER = Path(__file__).parent / "released"


class TrainedFlux(NamedTuple):
    """A flux, the law that it was trained for, and its card."""

    flux: NeuralFlux
    law: AbstractLaw
    card: dict[str, Any]


def save_flux(path: str | Path, flux: NeuralFlux, card: dict[str, Any]) -> Path:
    """Writes weights and card, whole or not at all.

    Args:
        path: file name, ending in .npz.
        flux: the trained flux.
        card: JSON values; `law` is a table with `kind` and the parameters of the law.
    """
    from sciml.files import replacing

    network = {
        "stencil": flux.stencil,
        "levels": flux.levels,
        "width": flux.weights[0].shape[0],
        "depth": len(flux.weights) - 1,
        "activation": flux.activation,
        "flux_clamp": flux.flux_clamp,
        "state_clamp": flux.state_clamp,
    }
    arrays = {f"weight{k}": np.asarray(w) for k, w in enumerate(flux.weights)}
    arrays |= {f"bias{k}": np.asarray(b) for k, b in enumerate(flux.biases)}
    for name in ("centre", "half_width", "flux_range"):
        arrays[name] = np.asarray(getattr(flux, name))
    path = Path(path)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, card=np.array(json.dumps({**card, "network": network})), **arrays)  # pyright: ignore
    return path


def load_flux(path: str | Path, *, clamps: bool = False) -> TrainedFlux:
    """Reads a file of `save_flux`.

    Args:
        path: file name.
        clamps: move fluxes and states into the law's range, as published; breaks the conservation.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is not a file of a trained flux.
    """
    from sciml.fv.catalogue import LAW_TYPES

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give the weights that `sciml fv train` wrote")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive.items())
        card = json.loads(str(arrays["card"]))
        table = dict(card["law"])
        law = LAW_TYPES[table.pop("kind")](**table)
        network = card["network"] | ({"flux_clamp": True, "state_clamp": True} if clamps else {})
        blank = NeuralFlux(**network, law=law, interval=(0.0, 1.0), key=jax.random.key(0))
        depth = len(blank.weights)
        parts = (
            tuple(jnp.asarray(arrays[f"weight{k}"]) for k in range(depth)),
            tuple(jnp.asarray(arrays[f"bias{k}"]) for k in range(depth)),
            *(jnp.asarray(arrays[name]) for name in ("centre", "half_width", "flux_range")),
        )
    except (KeyError, TypeError, OSError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path}: not a file of a trained flux ({error}); train one with `sciml fv train`"
        ) from error
    flux = eqx.tree_at(lambda f: (f.weights, f.biases, f.centre, f.half_width, f.flux_range), blank, parts)
    return TrainedFlux(flux, law, card)


def transferred(trained: TrainedFlux, law: AbstractLaw) -> NeuralFlux | None:
    """The flux in the units of another law of the same shape, f(u) = c f₀(u₀) + d with u linear in u₀ and
    c > 0; None when the shapes differ.
    """
    s = np.linspace(0.0, 1.0, 129)
    ends = [(float(x.lower), float(x.upper)) for x in (trained.law, law)]
    if not np.isfinite(ends).all():
        return trained.flux if eqx.tree_equal(trained.law, law) else None
    old, new = (
        np.asarray(x.flux(jnp.asarray(low + s * (high - low), jnp.float32)), float)
        for x, (low, high) in zip((trained.law, law), ends, strict=True)
    )
    design = np.stack([old, np.ones_like(old)], axis=1)
    (factor, shift), *_ = np.linalg.lstsq(design, new, rcond=None)
    scale = np.ptp(new)
    if not (factor > 0 and np.abs(design @ [factor, shift] - new).max() <= 1e-5 * max(scale, 1e-30)):
        return None
    (low0, high0), (low, high) = ends
    stretch = (high - low) / (high0 - low0)
    parts = (
        low + (np.asarray(trained.flux.centre) - low0) * stretch,
        np.asarray(trained.flux.half_width) * stretch,
        factor * np.asarray(trained.flux.flux_range) + shift,
    )
    return eqx.tree_at(
        lambda f: (f.centre, f.half_width, f.flux_range),
        trained.flux,
        tuple(jnp.asarray(x, jnp.float32) for x in parts),
    )


@functools.cache
def released(scheme: str, clamps: bool = False) -> tuple[TrainedFlux, ...]:
    """All released fluxes of a scheme name, one per law."""
    return tuple(load_flux(path, clamps=clamps) for path in sorted(FOLDER.glob(f"{scheme}.*.npz")))


def flux_for(scheme: str, law: AbstractLaw) -> NeuralFlux:
    """The released flux of a name, or that of a file, for a law; "+clamps" after it switches on both clamps.

    Raises:
        ValueError: when there is none for a law of this shape.
    """
    scheme, clamps = scheme.removesuffix(CLAMPS), scheme.endswith(CLAMPS)
    with jax.ensure_compile_time_eval():  # schemes are built inside of jitted functions, too
        choices = (load_flux(scheme, clamps=clamps),) if scheme.endswith(".npz") else released(scheme, clamps)
        for trained in choices:
            found = transferred(trained, law)
            if found is not None:
                return found
    known = ", ".join(trained.card["law"]["kind"] for trained in choices) or "none"
    raise ValueError(
        f"{scheme}: no weights for {type(law).__name__} with these parameters (there are: {known});"
        " train them with `sciml fv train`"
    )
