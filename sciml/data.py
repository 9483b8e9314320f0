"""Public data sets: where a file is, where it comes from, whether it is the right one, who is to be cited.

`fetch("traffic/i24/11-29-2022_post_TX.pt")` looks in the folder that the environment variable `SCIML_DATA`
names, then in the cache, then downloads; the SHA-256 sum is checked in all three cases. The files of every
set, with sums and addresses, are in `data_files.tsv`. Nothing is downloaded that the caller did not name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from sciml.files import cache_folder


@dataclasses.dataclass(frozen=True)
class DataFile:
    """One file of a set: path below the data folder, sum, size in bytes and address where they are known."""

    path: str
    sha256: str
    size: int | None
    url: str | None


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Files that belong together, with the terms under which they may be used."""

    name: str
    folder: str
    about: str
    licence: str
    citation: str
    source: str
    only: tuple[str, ...] = ()  # file names, where a folder holds several sets

    @property
    def files(self) -> tuple[DataFile, ...]:
        below = [file for file in _table().values() if file.path.startswith(f"{self.folder}/")]
        if self.only:
            below = [file for file in below if file.path.rpartition("/")[2] in self.only]
        return tuple(below)


_MATMINER = "https://pypi.org/project/matminer/0.4.2/ (source distribution)"
_MP = "Materials Project derived, CC BY 4.0; packaged in matminer (modified BSD)"

DATASETS = (
    DataSet(
        "i24",
        "traffic/i24",
        "density of Interstate 24 near Nashville, 8 mornings; 1300 x 90 (10 s, 64.3736 m); "
        "the number times 140 is veh/km/lane",
        "I-24 MOTION Data Use Agreement: free use with citation, no re-identification, as is",
        "Gloudemans et al., Transportation Research Part C 155, 104311 (2023)",
        "https://github.com/nathanlct/nfv",
    ),
    DataSet(
        "ngsim",
        "traffic/ngsim",
        "density, flow and speed on US 101 and I-80, binned to 20 ft and 5 s; veh/ft, veh/s, ft/s",
        "NGSIM: public product of the US Department of Transportation",
        "Avila and Mezic, Nature Communications 11, 2090 (2020)",
        "https://github.com/Allan-Avila/Highway-Traffic-Dynamics-KMD-Code",
    ),
    DataSet(
        "elastic",
        "materials",
        "1181 crystals with bulk and shear moduli (GPa) and elastic tensors, DFT-PBE",
        _MP,
        "de Jong et al., Scientific Data 2, 150009 (2015)",
        _MATMINER,
        ("elastic_tensor.csv.gz",),
    ),
    DataSet(
        "dielectric",
        "materials",
        "1056 crystals with refractive index, band gap (eV) and dielectric constant, DFT-PBE",
        _MP,
        "Petousis et al., Scientific Data 4, 160134 (2017)",
        _MATMINER,
        ("dielectric_constant.csv.gz",),
    ),
    DataSet(
        "piezoelectric",
        "materials",
        "941 crystals with the largest piezoelectric modulus (C/m2), DFT-PBE",
        _MP,
        "de Jong et al., Scientific Data 2, 150053 (2015)",
        _MATMINER,
        ("piezoelectric_tensor.csv.gz",),
    ),
    DataSet(
        "flla",
        "materials",
        "3938 crystals with formation energy and energy above the hull (eV/atom), DFT-PBE",
        _MP,
        "Faber et al., International Journal of Quantum Chemistry 115, 1094 (2015)",
        _MATMINER,
        ("flla_2015.csv.gz",),
    ),
    DataSet(
        "perov-5",
        "materials",
        "3787 cubic perovskites (validation part) with heat of formation (eV per cell) and gaps",
        "MIT (cdvae)",
        "Castelli et al., Energy & Environmental Science 5, 5814 (2012)",
        "https://github.com/txie-93/cdvae (data/perov_5/val.csv, compressed with gzip)",
        ("perov_5_val.csv.gz",),
    ),
    DataSet(
        "carbon-24",
        "materials",
        "2032 carbon structures (validation part) with energy per atom (eV)",
        "MIT (cdvae)",
        "Pickard, Materials Cloud Archive 2020.0026",
        "https://github.com/txie-93/cdvae (data/carbon_24/val.csv, compressed with gzip)",
        ("carbon_24_val.csv.gz",),
    ),
    DataSet(
        "aflow-prototypes",
        "materials",
        "288 prototype structures in 100 space groups, no property",
        "MIT (pymatgen)",
        "Mehl et al., Computational Materials Science 136, S1 (2017)",
        "https://github.com/materialsproject/pymatgen",
        ("aflow_prototypes.json.gz",),
    ),
    DataSet(
        "tricky-cif",
        "materials/tricky",
        "8 CIF files with odd symbols or labels that contradict the atoms",
        "MIT (PyXtal)",
        "Fredericks et al., Computer Physics Communications 261, 107810 (2021)",
        "https://github.com/MaterSim/PyXtal",
    ),
    DataSet(
        "htc2022",
        "ct/htc2022",
        "fan-beam scans of acrylic discs with holes, 721 x 560, with reference segmentations",
        "CC BY 4.0",
        "Meaney, Silva de Moura and Siltanen, Helsinki Tomography Challenge 2022, "
        "doi:10.5281/zenodo.6984868 and doi:10.5281/zenodo.7418878",
        "https://zenodo.org/record/7418878/files/htc2022_test_data.zip (01a and later), "
        "https://zenodo.org/records/6984868 (training discs)",
    ),
    DataSet(
        "tooth",
        "ct/tomopy_tooth",
        "synchrotron scan of a tooth, parallel beam, 181 views, with flat and dark fields (Data Exchange)",
        "TomoPy: BSD-like, UChicago Argonne",
        "Gursoy et al., Journal of Synchrotron Radiation 21, 1188 (2014)",
        "https://github.com/tomopy/tomopy",
    ),
    DataSet(
        "ctsimu",
        "ct/ctsimu",
        "simulated industrial cone-beam scans with misalignment, flat and dark fields, and the true shapes",
        "Apache-2.0",
        "CTSimU project, Bundesanstalt fuer Materialforschung und -pruefung (BAM)",
        "https://github.com/BAMresearch/ctsimu-scenarios (folder examples)",
    ),
    DataSet(
        "neutron360",
        "ct/neutron360",
        "neutron sinogram over 360 degrees with an offset axis",
        "Apache-2.0",
        "Vo, Atwood and Drakopoulos, Optics Express 26, 28396 (2018)",
        "https://github.com/nghia-vo/sarepy",
    ),
    DataSet(
        "xradia-chip",
        "ct/xradia_chip",
        "Zeiss Xradia .txrm file, 7 views",
        "BSD-like, UChicago Argonne (dxchange)",
        "De Carlo et al., Journal of Synchrotron Radiation 21, 1224 (2014)",
        "https://github.com/data-exchange/dxchange",
    ),
    DataSet(
        "k11",
        "ct/httomo_k11",
        "NXtomo NeXus file with image keys, 3201 frames of 22 x 26",
        "Apache-2.0/GPL-3 (httomo)",
        "Diamond Light Source, beamline K11 (DIAD), visit 18014",
        "https://github.com/DiamondLightSource/httomo",
    ),
    DataSet(
        "svmbirct-shepp",
        "ct/svmbirct_shepp",
        "simulated parallel-beam sinogram of the Shepp-Logan phantom, 288 x 512, offset axis",
        "BSD-3-Clause",
        "High Performance Imaging, sv-mbirct",
        "https://github.com/HPImaging/sv-mbirct",
    ),
    DataSet(
        "tomophantom",
        "ct/tomophantom",
        "library of analytic two-dimensional phantoms (text)",
        "Apache-2.0",
        "Kazantsev et al., SoftwareX 7, 150 (2018)",
        "https://github.com/dkazanc/TomoPhantom",
    ),
)

Status = Literal["SCIML_DATA", "cache", "absent"]


@functools.cache
def _table() -> dict[str, DataFile]:
    table = {}
    for line in (files("sciml") / "data_files.tsv").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            path, sha256, size, url = line.split("\t")
            table[path] = DataFile(
                path, sha256, None if size == "-" else int(size), None if url == "-" else url
            )
    return table


def dataset(name: str) -> DataSet:
    """The set of that name; `ValueError` names the nearest one there is."""
    for each in DATASETS:
        if each.name == name:
            return each
    raise ValueError(_unknown(name))


def find(file: DataFile) -> tuple[Status, Path | None]:
    """Where a file is now: below `SCIML_DATA`, in the cache, or nowhere; its content is not looked at."""
    given, cache = _data_folder(), _cache()
    if given is not None and (given / file.path).is_file():
        return "SCIML_DATA", given / file.path
    return ("cache", cache / file.path) if (cache / file.path).is_file() else ("absent", None)


def fetch(name: str, *, progress: bool = False) -> Path:
    """The path of a file, or of the only file of a data set, downloaded when it is not here yet.

    **Arguments:**

    - `name`: path below the data folder, e.g. `"traffic/i24/11-29-2022_post_TX.pt"`, or a set of one file.
    - `progress`: show a progress bar on standard error.

    **Raises:** `ValueError` for a name that is not in the registry or a file with the wrong content,
    `FileNotFoundError` when the file is not here and cannot be downloaded; it says which file to put where.
    """
    file = _table().get(name)
    if file is None:
        members = dataset(name).files
        if len(members) != 1:
            raise ValueError(f"data set {name!r} has {len(members)} files; name one, e.g. {members[0].path}")
        file = members[0]
    _, path = find(file)
    if path is None:
        path = _download(file, progress)
    check(file, path)
    return path


def check(file: DataFile, path: Path) -> None:
    """Raises `ValueError` when a file has not the content that the registry knows."""
    found = sha256(path)
    if found != file.sha256:
        raise ValueError(
            f"{path}: the SHA-256 sum is {found}, expected {file.sha256}; remove the file and get it again"
        )


def sha256(path: Path) -> str:
    """The SHA-256 sum of a file in hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _cache() -> Path:
    return cache_folder() / "data"


def _data_folder() -> Path | None:
    folder = os.environ.get("SCIML_DATA")
    return Path(folder) if folder else None


def _download(file: DataFile, progress: bool) -> Path:
    import pooch

    target = (_data_folder() or _cache()) / file.path
    remedy = f"put it at {target} (SHA-256 {file.sha256})"
    if file.url is None:
        owner = next(each for each in DATASETS if file in each.files)
        raise FileNotFoundError(
            f"{file.path} is not here and has no public address of its own; "
            f"it comes from {owner.source}; {remedy}"
        )
    target = _cache() / file.path
    bar: Any = _Progress(file) if progress else False
    downloader: Any = pooch.HTTPDownloader(progressbar=bar, timeout=60)
    pooch.get_logger().setLevel("ERROR")
    try:
        pooch.retrieve(file.url, f"sha256:{file.sha256}", target.name, target.parent, downloader=downloader)
    except OSError as error:
        reason = type(error).__name__
        raise FileNotFoundError(
            f"{file.path} is not here and {file.url} cannot be reached ({reason}); download it and {remedy}"
        ) from error
    return target


class _Progress:
    """The four members that pooch wants of a progress bar, drawn by rich."""

    def __init__(self, file: DataFile):
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(file.path, total=file.size)
        self._bar.start()
        self.total: Any = file.size

    def update(self, size: int) -> None:
        self._bar.update(self._task, advance=size, total=self.total)

    def reset(self) -> None:
        self._bar.reset(self._task)

    def close(self) -> None:
        self._bar.stop()


def _unknown(name: str) -> str:
    import difflib

    known = [each.name for each in DATASETS] + list(_table())
    near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "`sciml data list` shows what there is"
    return f"unknown data set or file {name!r}; {hint}"
