"""Identify the problem of a run: its data, its start, versions and devices."""

from collections.abc import Mapping
import dataclasses
import hmac
import re
from typing import Any

from fl_sketch.data import store
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import Experiment, devices, program as program_lib
from fl_sketch.utils import digests, files
from fl_sketch.utils.types import Params, Tree
import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

Record = dict[str, Any]

DATA, START, SOURCE = 'data', 'start', 'source of fl_sketch'
NOISE, ROUND = 'noise multiplier', 'one round'
KERNELS = 'deterministic kernels'  # `launch.train --nodeterministic`
# Of JAX; by them one key draws other noise, and sums round otherwise.
FLAGS = 'jax_threefry_partitionable', 'jax_default_matmul_precision'

KEYED = 'keyed '  # begins a digest by a secret
DIGESTS = {DATA, START, SOURCE, ROUND}
_ADDRESS = re.compile(r' at 0x[0-9a-f]+')


def of(exp: Experiment, mesh: jax.sharding.Mesh | None = None) -> Record:
  """Return the record of an experiment.

  A private run has two more entries: its noise multiplier, and 'one round', a
  digest of its devices and its program, since the same noise under another
  update would cancel in their difference. `mesh`: default all devices.

  Raises DataError if arrays of a private run's store were changed.
  """
  guarantee = exp.guarantee
  partition = exp.partition.offsets, exp.partition.indices
  arrays = {'train': exp.data, 'test': exp.test, 'partition': partition}
  params = exp.params, exp.hyper.frozen
  problem = record(arrays, params, read=guarantee is not None)
  if guarantee is not None:
    mesh = mesh_lib.cohort_mesh() if mesh is None else mesh
    problem[NOISE] = guarantee.noise_multiplier
    problem[ROUND] = _of_round(exp, mesh)
  return problem


def record(arrays: Tree, params: Params, read: bool = False) -> Record:
  """Return digests of arrays and of parameters that are drawn, and versions.

  `read` reads the arrays of a store, whose digests are on record.
  """
  problem: Record = {DATA: _digest(arrays, read)}
  leaves = jax.tree.leaves(params)
  if not any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves):
    problem[START] = _digest(params)
  problem[SOURCE] = digests.of_source()
  about = files.measured_with()
  problem |= about.pop('versions') | about
  problem[KERNELS] = devices.deterministic(jax.default_backend())
  return problem | {name: getattr(jax.config, name) for name in FLAGS}


def keyed(problem: Mapping[str, Any], secret: bytes) -> Record:
  """Replace the digests of data and program by their HMAC-SHA256.

  A plain digest confirms a guess: who knows all samples but one compares it
  with that of each candidate. Programs may have captured data.

  >>> keyed({'seed': 1, 'data': 64 * 'a'}, b'secret')['data'][:14]
  'keyed 37aa275d'
  """
  secrets = {}
  for name in {DATA, ROUND} & problem.keys():
    text = f'{name}: {problem[name]}'.encode()
    secrets[name] = KEYED + hmac.digest(secret, text, 'sha256').hex()
  return {**problem, **secrets}


def _of_round(exp, mesh) -> str:
  """Return the digest of devices and of a round's jaxpr with its constants."""
  # A resumed run may change how many rounds a scan dispatches.
  config = dataclasses.replace(exp.config, rounds_per_dispatch=1)
  run = program_lib.program(exp._replace(config=config), mesh)
  jaxpr = jax.make_jaxpr(run.fn)(*run.args)
  kinds = [device.device_kind for device in mesh.devices.flat]
  text = _ADDRESS.sub('', f'{kinds} {jaxpr}')
  return digests.of_text(text + _digest(_constants(jaxpr)))


def _constants(jaxpr: core.Jaxpr | core.ClosedJaxpr) -> list[Tree]:
  """Return the arrays captured by a jaxpr and by those in its equations."""
  arrays = [*getattr(jaxpr, 'consts', ())]
  for equation in jaxpr.eqns:
    for part in jax.tree.leaves([*equation.params.values()]):
      if isinstance(part, core.Jaxpr | core.ClosedJaxpr):
        arrays += _constants(part)
  return arrays


def _digest(tree: Tree, read: bool = False) -> str:
  """Return the digest of paths, types, shapes and values of a tree's arrays."""
  lines = []
  for path, x in jax.tree.leaves_with_path(tree):
    name = jax.tree_util.keystr(path)
    kind = f'{name} {x.dtype}{[*x.shape]}'
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
      x = jax.random.key_data(x)
    if not isinstance(x, np.memmap):  # np.asarray would hide that
      x = np.asarray(x)
    lines.append(f'{kind} {store.digest(x, read=read)}')
  return digests.of_text('\n'.join(lines))
