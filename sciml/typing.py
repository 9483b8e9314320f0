"""Array aliases that every room uses; shapes and dtypes are jaxtyping annotations.

`Scalar` is an array without axes, `ScalarLike` what a caller may give for one, `Key` a PRNG key.
"""

from typing import TypeAlias

from jaxtyping import Array, Float, PRNGKeyArray

Scalar: TypeAlias = Float[Array, ""]
ScalarLike: TypeAlias = float | int | Float[Array, ""]
Key: TypeAlias = PRNGKeyArray
