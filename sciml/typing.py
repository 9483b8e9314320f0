"""Array aliases and documented fields that every room uses; shapes and dtypes are jaxtyping annotations.

`Scalar` is an array without axes, `ScalarLike` what a caller may give for one, `Key` a PRNG key.
"""

import dataclasses
from typing import Any, TypeAlias

from jaxtyping import Array, Float, PRNGKeyArray

Scalar: TypeAlias = Float[Array, ""]
ScalarLike: TypeAlias = float | int | Float[Array, ""]
Key: TypeAlias = PRNGKeyArray


def documented(doc: str, default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """A dataclass field with the line that `--help` prints for it; without a default it must be given."""
    if default is not dataclasses.MISSING:
        options["default"] = default
    return dataclasses.field(metadata={"doc": doc}, **options)
