"""Triangle meshes in STL files, and the volumes that they enclose."""

import struct
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from sciml.ct.grid import VolumeGrid
from sciml.files import replacing

_TRIANGLE = np.dtype([("normal", "<3f4"), ("corners", "<9f4"), ("attribute", "<u2")])


def read_stl(path: Path) -> Float[np.ndarray, "triangles 3 3"]:
    """Corners of the triangles of a binary or ASCII STL file.

    Raises:
        ValueError: naming the file, when it is cut short or no STL file.
    """
    content = Path(path).read_bytes()
    if len(content) >= 84 and len(content) == 84 + 50 * struct.unpack("<I", content[80:84])[0]:
        triangles = np.frombuffer(content[84:], _TRIANGLE)["corners"]
        return triangles.reshape(-1, 3, 3).astype(np.float64)
    lines = [line.split() for line in content.decode("latin-1").splitlines()]
    corners = [line[1:4] for line in lines if line[:1] == ["vertex"]]
    if not corners or len(corners) % 3:
        raise ValueError(f"{path}: neither a whole binary nor an ASCII STL file")
    return np.array(corners, np.float64).reshape(-1, 3, 3)


def write_stl(path: Path, triangles: Float[np.ndarray, "triangles 3 3"]) -> None:
    """Writes triangles as a binary STL file, whole or not at all."""
    corners = np.asarray(triangles, np.float64)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    records = np.zeros(len(corners), _TRIANGLE)
    records["normal"] = normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-30)
    records["corners"] = corners.reshape(-1, 9)
    with replacing(Path(path)) as temporary, open(temporary, "wb") as file:
        file.write(b"\0" * 80 + struct.pack("<I", len(corners)) + records.tobytes())


def voxelise(
    triangles: Float[np.ndarray, "triangles 3 3"], grid: VolumeGrid, *, samples: int = 3
) -> Float[np.ndarray, "slices rows columns"]:
    """How much of every voxel a closed mesh encloses (0 to 1), from `samples`³ points in each.

    Points lie inside when a line along z crosses the mesh an odd number of times above them.
    """
    shifts = ((np.arange(samples) + 0.5) / samples - 0.5) * grid.pixel
    total = np.zeros(grid.shape)
    z = (grid.z[:, None] - shifts).ravel()  # downwards
    for dx in shifts:
        for dy in shifts:
            inside = _inside(np.asarray(triangles, np.float64), grid.x + dx, grid.y + dy, z)
            total += inside.reshape(len(grid.z), samples, *inside.shape[1:]).mean(1)
    return total / samples**2


def _inside(triangles: np.ndarray, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> Bool[np.ndarray, "z y x"]:
    crossings = np.zeros((len(z) + 1, len(y), len(x)), bool)  # odd number of crossings just above z[k]
    for a, b, c in triangles:
        area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
        if area == 0:
            continue
        low, high = np.minimum(np.minimum(a, b), c), np.maximum(np.maximum(a, b), c)
        columns = np.flatnonzero((x >= low[0]) & (x <= high[0]))
        rows = np.flatnonzero((y >= low[1]) & (y <= high[1]))
        if not (len(columns) and len(rows)):
            continue
        px, py = x[columns][None], y[rows][:, None]
        s = ((px - a[0]) * (c[1] - a[1]) - (py - a[1]) * (c[0] - a[0])) / area
        t = ((b[0] - a[0]) * (py - a[1]) - (b[1] - a[1]) * (px - a[0])) / area
        hit = (s >= 0) & (t >= 0) & (s + t <= 1)
        height = a[2] + s * (b[2] - a[2]) + t * (c[2] - a[2])
        below = np.searchsorted(-z, -height)  # the first z below the crossing
        j, i = np.nonzero(hit)
        np.logical_xor.at(crossings, (below[j, i], rows[j], columns[i]), True)
    return np.logical_xor.accumulate(crossings[:-1], axis=0)
