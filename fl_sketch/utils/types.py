"""Names for what a pytree holds, which type checkers cannot tell apart."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax

Key: TypeAlias = jax.Array  # key[], a typed key of jax.random
Tree: TypeAlias = Any  # arrays
Params: TypeAlias = Any  # the parameters of a model
Payload: TypeAlias = Any  # arrays in the dtypes of the wire
Table: TypeAlias = Any  # the output of a sketch
Batch: TypeAlias = Mapping[str, Any]  # arrays by name, leaves [batch, ...]
