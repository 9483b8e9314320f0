"""How near an image is to another: PSNR and SSIM for attenuation, Dice and MCC for segmentations."""

import numpy as np
from jaxtyping import Float


def psnr(image, reference, *, span: float | None = None) -> float:
    """Peak signal-to-noise ratio 10 log₁₀(span² / mean((f - g)²)) [dB].

    Args:
        image: image f.
        reference: true image g.
        span: range of values; default the largest minus the smallest of the reference.
    """
    image, reference = np.asarray(image, np.float64), np.asarray(reference, np.float64)
    span = float(np.ptp(reference)) if span is None else span
    error = float(np.mean((image - reference) ** 2))
    return float("inf") if error == 0 else 10 * np.log10(span**2 / error)


def ssim(image, reference, *, span: float | None = None) -> float:
    """Structural similarity: mean over Gaussian windows of 11 x 11 pixels, standard deviation 1.5.

    Reference: Z. Wang, A. C. Bovik, H. R. Sheikh and E. P. Simoncelli, IEEE Trans. Image Process. 13, 600
    (2004).

    Args:
        image: image f.
        reference: true image g.
        span: range of values; default the largest minus the smallest of the reference.
    """
    from scipy.ndimage import gaussian_filter

    f, g = np.asarray(image, np.float64), np.asarray(reference, np.float64)
    span = float(np.ptp(g)) if span is None else span
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2

    def mean(values: Float[np.ndarray, "..."]):
        return gaussian_filter(values, 1.5, radius=5)

    mf, mg = mean(f), mean(g)
    variance_f, variance_g, covariance = mean(f * f) - mf**2, mean(g * g) - mg**2, mean(f * g) - mf * mg
    score = (2 * mf * mg + c1) * (2 * covariance + c2)
    return float(np.mean(score / ((mf**2 + mg**2 + c1) * (variance_f + variance_g + c2))))


def dice(segmentation, reference) -> float:
    """Dice coefficient 2|A ∩ B| / (|A| + |B|) of two boolean images; 1 when both are empty."""
    a, b = np.asarray(segmentation, bool), np.asarray(reference, bool)
    total = a.sum() + b.sum()
    return float(2 * (a & b).sum() / total) if total else 1.0


def mcc(segmentation, reference) -> float:
    """Matthews correlation coefficient of two boolean images, from -1 to 1; 0 when one is constant."""
    a, b = np.asarray(segmentation, bool), np.asarray(reference, bool)
    if a.all() or b.all() or not a.any() or not b.any():
        return 0.0
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])
