"""Reconstruction methods beside one another on one measured scan, from fewer and fewer of its views.

What is right is not known for a measured scan. The reference is the filtered backprojection of all views,
unless an image is given; a segmentation, where there is one, is compared with the image above half height.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from sciml.ct.grid import ImageGrid, VolumeGrid
from sciml.ct.metrics import dice, mcc, psnr, ssim
from sciml.ct.reconstruct import Outcome, Settings, reconstruct
from sciml.ct.scan import Scan


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Images and scores of one scan.

    Args:
        grid: the pixels, or voxels.
        reference: what images are compared with.
        segmentation: what is material, or None.
        outcomes: views -> method -> outcome.
    """

    grid: ImageGrid | VolumeGrid
    reference: Float[np.ndarray, "*slices rows columns"]
    segmentation: Bool[np.ndarray, "rows columns"] | None
    outcomes: dict[int, dict[str, Outcome]]

    def rows(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Scores: views -> method -> psnr [dB], ssim, dice, mcc (with a segmentation), residual, seconds."""
        return {
            str(views): {name: self._scores(outcome) for name, outcome in by_method.items()}
            for views, by_method in self.outcomes.items()
        }

    def _scores(self, outcome: Outcome) -> dict[str, Any]:
        scores: dict[str, Any] = {
            "psnr": psnr(outcome.image, self.reference),
            "ssim": ssim(outcome.image, self.reference),
        }
        if self.segmentation is not None:
            found = segmented(outcome.image)
            scores |= {"dice": dice(found, self.segmentation), "mcc": mcc(found, self.segmentation)}
        return {
            **scores,
            "residual": outcome.residual,
            "seconds_with_compilation": round(outcome.seconds, 3),
            **outcome.extra,
        }


def compare(
    scan: Scan,
    grid: ImageGrid | VolumeGrid,
    methods: Sequence[str],
    views: Sequence[int],
    *,
    settings: Settings | None = None,
    reference: Float[np.ndarray, "*slices rows columns"] | None = None,
    segmentation: Bool[np.ndarray, "rows columns"] | None = None,
    progress: Callable[[int, str, Outcome], None] = lambda views, method, outcome: None,
) -> Comparison:
    """Every method on every number of views.

    Args:
        scan: the scan.
        grid: pixels, or voxels.
        methods: names, see `reconstruct`.
        views: numbers of views.
        settings: settings of the methods.
        reference: image to compare with; default the filtered backprojection of all views (window hann).
        segmentation: what is material.
        progress: called with views, method and outcome when one is done.

    Raises:
        ValueError: for an unknown method, too many views, or images of another shape than the grid.
    """
    for what, image in (("reference", reference), ("segmentation", segmentation)):
        if image is not None and image.shape != grid.shape:
            raise ValueError(f"{what} has shape {image.shape}, the grid {grid.shape}")
    if reference is None:
        full = reconstruct("fbp", scan.sinogram, scan.geometry, grid, Settings(filter="hann"))
        reference = full.image
    outcomes: dict[int, dict[str, Outcome]] = {}
    for number in views:
        thinned = scan.thinned(number)
        outcomes[number] = {}
        for method in methods:
            outcome = reconstruct(method, thinned.sinogram, thinned.geometry, grid, settings)  # pyright: ignore
            outcomes[number][method] = outcome
            progress(number, method, outcome)
    return Comparison(grid, reference, segmentation, outcomes)


def segmented(image: Float[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Where an image is above half of the attenuation of its material.

    That is the median of what lies above the threshold of Otsu, IEEE Trans. Syst. Man Cybern. 9, 62 (1979).
    """
    values = np.asarray(image, np.float64).ravel()
    counts, edges = np.histogram(values, 256)
    middles = (edges[1:] + edges[:-1]) / 2
    below, mass = np.cumsum(counts), np.cumsum(counts * middles)
    above = below[-1] - below
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * (mass / below - (mass[-1] - mass) / above) ** 2
    threshold = middles[np.nanargmax(np.where(np.isfinite(between), between, np.nan))]
    material = values[values > threshold]
    return np.asarray(image) > (np.median(material) / 2 if len(material) else threshold)


def htc_segmentation(path: Path) -> tuple[Bool[np.ndarray, "512 512"], ImageGrid] | None:
    """The reference segmentation of a scan of the Helsinki Tomography Challenge beside it, with its pixels
    (the detector's bins as seen on the axis); None when there is none.
    """
    import scipy.io

    stems = (path.stem, path.stem.removesuffix("_full"))
    for stem in stems:
        found = path.with_name(f"{stem}_recon_fbp_seg.mat")
        if found.is_file():
            content = scipy.io.loadmat(found)
            image = next(value for name, value in content.items() if not name.startswith("_"))
            return np.asarray(image, bool), ImageGrid(512, pixel=0.2 * 410.66 / 553.74)
    return None
