"""Identifies what a run computes: its problem, and the code that computes it.

A record is equal in every process, and but for 'device' and the rounding of
'start' on every machine.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import functools
import hmac
import pathlib
import re
from typing import Any

from fl_sketch.data import store
from fl_sketch.experiment import Experiment
from fl_sketch.experiment.fields import registries
from fl_sketch.models import losses
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.rounds.algorithm import with_hyper
from fl_sketch.training import devices, log, program as program_lib
from fl_sketch.utils import digests, files, registry
import jax
from jax.extend import core
import numpy as np
import optax

Record = dict[str, Any]

# Names of entries.
PROGRAM, START, SOURCE = 'model and loss', 'start', 'source of fl_sketch'
NOISE, ROUND = 'noise multiplier', 'one round'
PLUGINS = 'source of plug-ins'  # of the registered parts that a config names
# Rounds done when the schedule or the secret of a private run changed: from
# fewer of them it would release some rounds twice.
SINCE = 'rounds before it was extended'
KERNELS = 'deterministic kernels'  # `launch.train --nodeterministic`
# Of JAX; by them one key draws other noise, and sums round otherwise.
FLAGS = 'jax_threefry_partitionable', 'jax_default_matmul_precision'

KEYED = 'keyed '  # begins a digest by a secret
DIGEST = re.compile(f'({KEYED})?[0-9a-f]{{64}}')
_ADDRESS = re.compile(r' at 0x[0-9a-f]+')
_OPTAX = pathlib.Path(optax.__file__).parent


def of(exp: Experiment, mesh: jax.sharding.Mesh | None = None) -> Record:
  """Returns the record of an experiment.

  If the run is private, the arrays of a store are read, and there are two more
  entries: the noise multiplier, since another version of the accountant may
  calibrate another one, and 'one round', a digest of its devices and of the
  jaxpr of a round without hyperparameters, in which the algorithm is, wherever
  it comes from. `mesh` is of all devices by default. Raises DataError if arrays
  of a store were changed, and PlacementError if the devices cannot hold what
  the config of a private run places on them.
  """
  shapes = lambda tree, *first: jax.tree.map(
    lambda x: jax.ShapeDtypeStruct((*first, *x.shape[1:]), x.dtype), tree
  )
  model, fns = _of_model(exp)
  batches = shapes(exp.data, 2), shapes(exp.test)
  arrays = {'partition': [exp.partition.offsets, exp.partition.indices]}
  for kind, tree in (('training data', exp.data), ('test data', exp.test)):
    for path, x in jax.tree.leaves_with_path(tree):
      name = jax.tree_util.keystr(path, simple=True, separator='.')
      arrays[f'{kind} {name}'] = [x]
  more: Record = _plugins(exp.config)
  if private := exp.guarantee is not None:
    mesh = mesh_lib.cohort_mesh() if mesh is None else mesh
    # A resumed run may change how many rounds a scan dispatches.
    c = dataclasses.replace(exp.config, rounds_per_dispatch=1)
    run = program_lib.program(exp._replace(config=c), mesh)
    kinds = [device.device_kind for device in mesh.devices.flat]
    one = digests.of_text(f'{kinds} {_traced(run.fn, *run.args)}')
    more |= {NOISE: exp.guarantee.noise_multiplier, ROUND: one}
  return record(zip(fns, batches, strict=True), model, arrays, private) | more


def keyed(record: Record, secret: bytes) -> Record:
  """Replaces the digests of data and programs by their HMAC-SHA256.

  A plain digest confirms a guess: who knows all samples but one compares it
  with that of each candidate. Programs may have captured data.

  >>> keyed({'seed': 1, 'partition': 64 * 'a'}, b'secret')['partition'][:14]
  'keyed 557a703e'
  """
  of_secret = lambda text: hmac.digest(secret, text.encode(), 'sha256').hex()
  found = {name for name, x in record.items() if DIGEST.fullmatch(str(x))}
  return record | {
    name: f'{KEYED}{of_secret(f"{name}: {record[name]}")}'
    for name in found - {START, SOURCE, PLUGINS}  # which are public anyway
  }


def _of_model(exp):
  """The model with what is frozen, and its loss with gradient and metrics."""
  frozen, key = exp.hyper.frozen, jax.random.key(0)

  def parts(model):
    if frozen is None:
      return model, exp.hyper
    return model[0], exp.hyper._replace(frozen=model[1])

  def loss_fn(model, batch):
    params, hyper = parts(model)
    fn = with_hyper(exp.loss_fn, hyper)
    if losses.takes_key(fn):
      fn = functools.partial(fn, key=key)
    return jax.value_and_grad(fn)(params, batch)

  metrics_fn = lambda model, batch: log.metrics_of(exp)(parts(model), batch)
  model = exp.params if frozen is None else (exp.params, frozen)
  return model, (loss_fn, metrics_fn)


def _plugins(c: Any) -> Record:
  """The digest of the files of parts that are not of fl_sketch or optax."""
  own, texts, parts = digests.ROOT, [], registries.named(c).values()
  factories = (known.entry(name).factory for known, name, _ in parts)
  for file in sorted({*map(registry.source_of, factories)}):
    path = pathlib.Path(file)
    if path.is_file() and not {own, _OPTAX} & {*path.parents}:
      texts.append(path.read_text())
  return {PLUGINS: digests.of_text('\n'.join(texts))} if texts else {}


def record(
  programs: Iterable[tuple[Callable[..., Any], Any]],
  params: Any,
  arrays: Mapping[str, list[Any]],
  read: bool = False,
) -> Record:
  """Returns the record of functions of parameters, and of arrays.

  Its entries are a digest of the jaxprs, 'model and loss', one of the bytes of
  the parameters, 'start', unless they are not drawn, one for each name of
  `arrays`, one of the source of fl_sketch, and versions and devices. Of
  parameters that are not drawn, and of batches, shapes will do. `read` reads
  the arrays of a store, whose digests are on record.
  """
  texts = [_traced(fn, params, batch) for fn, batch in programs]
  found: Record = {PROGRAM: digests.of_text('\n'.join(texts))}
  leaves = jax.tree.leaves(params)
  if not any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves):
    arrays = {START: leaves, **arrays}
  for name, several in arrays.items():
    texts = [_array(x, read) for x in several if x is not None]
    found[name] = digests.of_text('\n'.join(texts))
  found[SOURCE] = digests.of_source()
  about = files.measured_with()
  found |= about.pop('versions') | about
  found[KERNELS] = devices.deterministic(jax.default_backend())
  return found | {name: getattr(jax.config, name) for name in FLAGS}


def _traced(fn, *args) -> str:
  """Text of a function's jaxpr and of the trees of its arguments and result."""
  jaxpr, result = jax.make_jaxpr(fn, return_shape=True)(*args)
  trees = jax.tree.structure((*args, result))
  return _ADDRESS.sub('', str(trees)) + _text(jaxpr)


def _text(x: Any) -> str:
  """Text of a jaxpr or of a parameter of its equations, without addresses."""
  if isinstance(x, core.Jaxpr | core.ClosedJaxpr):  # one class since JAX 0.12
    inner: Any = getattr(x, 'jaxpr', x)
    return f'{_text([*getattr(x, "consts", ())])} {_equations(inner)}'
  if isinstance(x, Mapping):
    return _text(sorted((str(k), _text(v)) for k, v in x.items()))
  if isinstance(x, set | frozenset):
    return _text(sorted(map(_text, x)))
  if isinstance(x, tuple | list):
    return f'[{", ".join(map(_text, x))}]'
  if isinstance(x, jax.Array) or hasattr(x, '__array__'):
    return _array(x)
  if callable(x):
    return getattr(x, '__name__', type(x).__name__)
  return _ADDRESS.sub('', str(x))


def _equations(jaxpr: core.Jaxpr) -> str:
  """Text of a jaxpr, whose variables are numbered as they come."""
  numbers: dict[Any, int] = {}

  def atoms(several):
    texts = []
    for v in several:
      literal = isinstance(v, core.Literal)
      name = _text(v.val) if literal else numbers.setdefault(v, len(numbers))
      texts.append(f'{name}:{v.aval}')
    return ' '.join(texts)

  lines = [atoms([*jaxpr.constvars, *jaxpr.invars])]
  for e in jaxpr.eqns:
    inputs = f'{e.primitive}{_text(e.params)} {atoms(e.invars)}'
    lines.append(f'{atoms(e.outvars)} = {inputs}')
  return '\n'.join([*lines, atoms(jaxpr.outvars)])


def _array(x: Any, read: bool = False) -> str:
  """Type, shape and digest of an array."""
  kind = f'{x.dtype}{[*x.shape]}'
  if kind.startswith('key<'):
    x = jax.random.key_data(x)
  mapped = isinstance(x, np.memmap)  # np.asarray would hide that
  digest = store.digest(x if mapped else np.asarray(x), read=read)
  return f'{kind} {digest}'
