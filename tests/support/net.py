"""Holds a refactoring to the numbers of the commit that it began with.

  python tests/support/net.py [--base=COMMIT] [--only=NAME,...] [--devices=1,2]
    [--tree=DIR] [--python=PATH] [--cache=DIR]

Plays quick runs that touch every algorithm, sketch, codec and option in a
worktree of the base commit and in the present tree, one process at a time, on
the same Python and JAX; then compares, bit for bit, the rows of metrics.jsonl
but for `seconds`, the summary, and hashes of the final parameters and state;
and tables of algorithms, operators, theory, models and accountants. A line a
check; status 1 where anything differs, raises, or is covered by no run. What
the base gave is kept in the cache. The worker must run in both trees: what
moves is looked for under its new names and then its old (`find`).
"""

import argparse
import ast
import hashlib
import importlib
import itertools
import json
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import tempfile
import time
import warnings

BASE = '9833e3f'
HERE = pathlib.Path(__file__).resolve()
SMALL = {
  'dataset': 'digits', 'train_slice': ':600', 'test_slice': ':50',
  'widths': (8,), 'population': 6, 'cohort': 4, 'rounds': 3, 'local_steps': 2,
  'batch_size': 8, 'eval_every': 2, 'checkpoint_every': 3,
}  # fmt: skip
LINEAR, ALL, ONE = {'model': 'linear'}, {'cohort': 6}, {'local_steps': 1}
BOWLS = {
  'dataset': 'quadratics', 'train_slice': None, 'test_slice': None,
  'batch_size': 0, 'local_steps': 1,
}  # fmt: skip
COUNT = {'kind': 'count_sketch', 'rows': 3, 'cols': 20}
CYCLIC = {'kind': 'block_cyclic', 'size': 60, 'sparsity': 2}
NET = {'kind': 'sparse_embedding_2', 'size': 60, 'sparsity': 3}
HOSTILE = {'byzantine': 0.34}
PRIVATE = LINEAR | {
  'standardize': False, 'noise_multiplier': 2.0, 'clip_norm': 0.5,
  'delta': 1e-3, 'noise_seed': 7, 'sampling': 'poisson',
}  # fmt: skip
FIXED = PRIVATE | ALL | {'sampling': 'fixed_size'}
VIT = {'patch': 4, 'width': 8, 'depth': 1, 'heads': 2}
BERT = {
  'dataset': 'sst2', 'text_length': 8, 'vocabulary': 100,
  'model_options': {'width': 8, 'depth': 1, 'heads': 2},
}  # fmt: skip


def _of(algorithm, *parts, **fields):
  """The fields of a run: later ones win."""
  found = {'algorithm': algorithm}
  for part in (*parts, fields):
    found |= part
  return found


def _sketch(kind, **options):
  return {'sketch': {'kind': kind, **options}}


def _codec(kind, **options):
  return {'codec': {'kind': kind, **options}}


# `stop` is no field: the run is stopped after so many rounds, and resumed.
RUNS = {
  'fedavg': _of(
    'fedavg', partition='dirichlet', alpha=0.3, weights='samples',
    sampling='with_replacement', server_optimizer='yogi', server_lr=0.1,
    final_server_lr=0.01, lr_decay=0.9, label_smoothing=0.1, rounds=4,
    weight_decay=0.01, rounds_per_dispatch=2, checkpoint_every=2,
  ),
  'mask': _of(
    'fedavg', partition='size_skew', sigma=1.5, batch_order='mask',
    sampling='poisson', feed='host', compute_dtype='bfloat16',
    server_optimizer='momentum', momentum=0.9, lanes_per_step=2, stop=1,
  ),
  'gram': _of(
    'fedavg', LINEAR, batch_size=0, local_work='gram', standardize=False,
    partition='label_shards', shards_per_client=2, samples_per_client=40,
    server_optimizer='amsgrad', server_state='sharded', server_lr=0.1,
  ),
  'late': _of(
    'fedavg', over_sampling=1.5, dropout=0.3, deadline=1.5, response_sigma=0.8,
    model='vit_nano', model_options={'width': 8, 'depth': 1, 'heads': 2},
    feed='device',
  ),
  'cycle': _of(
    'fedsgd', ONE, server_optimizer='adagrad', batch_order='cycle', eps=1e-3,
    partition='classes_per_client', classes=2, server_lr=0.1,
  ),
  'each': _of(
    'iterative_sketching', BOWLS, _sketch('dct', size=50), rounds=4,
    server_optimizer='adam', b1=0.8, sketch_seed=3, rounds_per_dispatch=4,
    eval_every=4, checkpoint_every=4, start_scale=0.5,
  ),
  'one_each': _of(
    'fedavg', LINEAR, train_slice=':6', partition='one_each', batch_size=0,
    server_optimizer='sgd',
  ),
  'flipped': _of(
    'iterative_sketching', HOSTILE, _sketch('srht', size=64), groups=3,
    attack='sign_flip', robust='geometric_median', model='smooth_lenet',
  ),
  'noisy': _of(
    'safl', HOSTILE, _sketch('gaussian', size=32), attack='noise', groups=3,
    robust='median', model='vit_small', model_options=VIT,
  ),
  'large': _of(
    'fedavg', HOSTILE, attack='scale', max_payload_norm=2.0, model='resnet8',
    model_options={'width': 8, 'stem_stride': 2},
  ),
  'poisoned': _of(
    'fedsketch_privix', HOSTILE, _codec('int8', block=16), attack='nan',
    sketch=COUNT, model='vit_base', model_options=VIT,
  ),
  'heaprix': _of(
    'fedsketch_heaprix', sketch=COUNT, k=10, model='vit_tiny',
    model_options=VIT,
  ),
  'heaprix_literal': _of(
    'fedsketch_heaprix', BERT, sketch=COUNT, k=10, exact=False,
    model='bert_nano',
  ),
  'gate': _of(
    'fedsketchgate', ALL, sketch=COUNT, control_gain=0.5, client_state='host',
  ),
  'gate_printed': _of(
    'fedsketchgate', ALL, BERT, sketch=COUNT | {'combine': 'mean'}, k=10,
    printed=True, model='bert_tiny',
  ),
  'diffsketch': _of(
    'diffsketch', BERT, sketch=COUNT, noise_stddev=0.01, model='bert_mini',
  ),
  'safl': _of(
    'safl', _codec('int4', block=16), sketch=CYCLIC, clip='client',
    clip_norm=0.5, server_lr=0.1, final_server_lr=0.01, server_state='sharded',
  ),
  'safl_server': _of(
    'safl', BERT, _sketch('srft', size=32), clip='server', clip_norm=0.5,
    server_optimizer='amsgrad', model='bert_small',
  ),
  'sketched_sgd': _of(
    'sketched_sgd', ONE, sketch=COUNT, k=10, candidates=2, momentum=0.5,
    client_state='host', feed='host', stop=2,
  ),
  'fetchsgd': _of('fetchsgd', ONE, sketch=COUNT, k=10),
  'fetchsgd_subtract': _of(
    'fetchsgd', ONE, BERT, _sketch('uniform_sampling', size=90), k=10,
    error_update='subtract', momentum_masking=False, local_k=50,
    model='bert_base',
  ),
  'fedcom': _of(
    'fedcom', _codec('qsgd', levels=4), model='resnet18',
    model_options={'width': 8, 'stages': (1, 1)},
  ),
  'feedback': _of(
    'fedcom', _codec('qsgd', levels=2, contract=True), error_feedback=True,
    client_state='device', dropout=0.3,
  ),
  'bfloat16': _of(
    'fedcom', _codec('bfloat16'), model='resnet101',
    model_options={'width': 8, 'stages': (1,), 'stem_stride': 2},
  ),
  'fedcomgate': _of('fedcomgate', ALL, _codec('rand_k', k=30)),
  'scaffold': _of('scaffold', client_state='host', lanes_per_step=1, stop=2),
  'signsgd': _of('signsgd', ONE, server_lr=0.01),
  'marina': _of('marina', ONE, _codec('identity'), sync_probability=0.5),
  'ef21': _of('ef21', ONE, _codec('top_k', k=30), sampling='poisson'),
  'cd_adam': _of('cd_adam', ONE, _codec('sign'), server_lr=0.01, b2=0.9),
  'onebit_adam': _of('onebit_adam', ONE, warmup=1, server_lr=1e-4),
  'cocktail_sgd': _of(
    'cocktail_sgd', _codec('quantized_top_k', k=20, bits=4, bucket=10),
    mask_ratio=0.2,
  ),
  'tree': _of('decentralised', ALL, _sketch('ams', size=60), graph='star'),
  'gossip': _of(
    'decentralised', ALL, _sketch('identity'), graph='ring', gossip_steps=2,
    chebyshev=True, resync_every=2,
  ),
  'grid': _of('decentralised', ALL, graph='grid', gossip_steps=1, sketch=NET),
  'path': _of('decentralised', ALL, BOWLS, graph='path', sketch=NET),
  'complete': _of(
    'decentralised', ALL, BOWLS, graph='complete', gossip_steps=1,
    sketch=NET | {'kind': 'sparse_embedding_1'},
  ),
  'simulated': _of(
    'iterative_sketching', LINEAR, _codec('int8', block=32),
    _sketch('layerwise', factory='srht', size=64), dataset='simulated',
    samples_per_client=10, train_slice=None, test_slice=None,
  ),
  'store': _of(
    'fedavg', dataset='store', train_slice=None, test_slice=None,
    store='store', model='lenet5',
  ),
  'clipped': _of(
    'dp_fedavg', PRIVATE, noise_multiplier=None, epsilon=5.0, per_layer=True,
    dropout=0.2, server_optimizer='momentum', momentum=0.5,
    adjacency='zero_out',
  ),
  'normalized': _of('dp_normfedavg', FIXED, accountant='rdp', cohort=4),
  'quantile': _of(
    'dp_fedavg', PRIVATE, bound='quantile', quantile=0.4, quantile_lr=0.3,
    count_stddev=3.0, adjacency='add_or_remove_one', stop=2,
  ),
  'before': _of(
    'iterative_sketching', PRIVATE, sketch=CYCLIC, before_sketch=True,
    bound='normalize', accountant='pld', trust='central',
  ),
  'secure': _of(
    'safl', FIXED, sketch=CYCLIC, trust='secure_aggregation', min_honest=4,
    neighbours=4,
  ),
  'local': _of(
    'fedsketch_privix', FIXED, sketch=COUNT, trust='local', bound='clip',
    adjacency='replace_one',
  ),
  'private_heaprix': _of('fedsketch_heaprix', PRIVATE, sketch=COUNT, k=10),
  'private_gate': _of('fedsketchgate', FIXED, sketch=COUNT),
  'private_fetch': _of(
    'fetchsgd', PRIVATE, ONE, sketch=COUNT, k=10, momentum_masking=False
  ),
  'private_sketched': _of('sketched_sgd', PRIVATE, ONE, sketch=COUNT, k=10),
  'private_steps': _of(
    'private_iterative_sketching', PRIVATE, sketch=CYCLIC,
    sampling='fixed_size', batch_order='poisson', client_lr=0.05,
  ),
}  # fmt: skip
SWEEP = BOWLS | {'rounds': 2, 'sweep': {'server_lr': (1.0, 0.5)}}
# Field -> (values that no run needs, why).
EXCLUDED = {
  'dataset': (
    {'mnist', 'fashion_mnist', 'cifar10', 'cifar100'},
    'files of tensorflow-datasets, which a machine need not have',
  )
}
CHOICES = (  # in this order a value that is wrong is the first to be refused
  'algorithm', 'dataset', 'partition', 'model', 'sampling', 'batch_order',
  'weights', 'local_work', 'feed', 'client_state', 'server_state',
  'compute_dtype', 'attack', 'robust', 'server_optimizer', 'graph', 'sketch',
  'codec', 'bound', 'trust', 'adjacency', 'accountant',
)  # fmt: skip


def find(name, *modules):
  """An attribute, of the first of these modules that is there and has it."""
  for module in modules:
    try:
      found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as e:
      if not f'{module}.'.startswith(f'{e.name}.'):
        raise  # the module is there, and imports what is not
    else:
      if callable(found):
        return found
  raise ImportError(f'Expected {name} in one of {modules}.')


def build(*args):
  """An experiment of a config's fields, and of where data are."""
  return find('build', 'fl_sketch.experiment', 'fl_sketch.experiment.build')(
    *args
  )


def digest(tree):
  """A hash of all leaves: their shapes, dtypes and bits."""
  import jax
  import numpy as np

  found = hashlib.sha256()
  for x in jax.tree.leaves(tree):
    if jax.dtypes.issubdtype(getattr(x, 'dtype', None), jax.dtypes.prng_key):
      x = jax.random.key_data(x)
    x = np.asarray(x)
    found.update(f'{x.shape} {x.dtype}'.encode() + x.tobytes())
  return found.hexdigest()


def rows_of(path):
  """The lines of a file of JSON, but for how long they took."""
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  return [{k: v for k, v in r.items() if k != 'seconds'} for r in rows]


def play(fields, folder):
  """A run -> its rows, its summary, hashes of its parameters and its state."""
  train = find('train', 'fl_sketch.training', 'fl_sketch.training.train')
  fields, out = SMALL | fields, folder / 'run'
  stop = fields.pop('stop', None)
  if fields['dataset'] == 'store':
    fields['store'] = str(folder / 'store')
    write_store(folder / 'store', fields['population'])
  for rounds in filter(None, (stop, fields['rounds'])):
    exp = build(fields | {'rounds': rounds}, str(folder.parent))
    state = train(exp, str(out), progress=False).state
  summary = json.loads((out / 'summary.json').read_text())
  summary['versions'].pop('fl_sketch', None)  # the base does not write it
  return {
    'rows': rows_of(out / 'metrics.jsonl'),
    'parameters': digest(state.params),
    'state': digest(state),
    'summary': {k: v for k, v in summary.items() if k != 'seconds'},
  }


def write_store(folder, population):
  """Clients with 5, 6, 7, ... made-up pictures."""
  import numpy as np

  write = find('write', 'fl_sketch.data.store', 'fl_sketch.data.stores.store')
  rng, sizes = np.random.default_rng(0), 5 + np.arange(population)

  def pictures(n):
    x = rng.integers(0, 256, (n, 28, 28, 1), np.uint8)
    return {'x': x, 'y': rng.integers(0, 10, n, np.int32)}

  write(folder, [(sizes, pictures(sizes.sum()))], pictures(20), 10)


def write_sentences(folder):
  """As many made-up sentences as SST-2 has."""
  import numpy as np

  rng = np.random.default_rng(0)
  words = np.array('a bad film is not good but an unlovely one was so'.split())
  folder.mkdir()
  for split, count in ('train', 6920), ('test', 1821):
    picked = words[rng.integers(0, len(words), (count, 6))]
    lines = [f'{" ".join(p)}\t{i % 2}\n' for i, p in enumerate(picked)]
    (folder / f'{split}.tsv').write_text(''.join(lines))


def sweep(folder):
  """Two points in one program: rows of the sweep, and of each point."""
  run = find(
    'run', 'fl_sketch.sweeps', 'fl_sketch.sweeps.sweep', 'fl_sketch.sweeps.run',
    'fl_sketch.sweeps.grid', 'fl_sketch.sweep',
  )  # fmt: skip
  run(SMALL | SWEEP, folder, progress=False, points_per_program=2)
  files = sorted(folder.rglob('metrics.jsonl'))
  found = {str(f.relative_to(folder)): rows_of(f) for f in files}
  return found | {'points': rows_of(folder / 'points.jsonl')}


def table(_):
  """What all algorithms cost, without the marks that the base lacks."""
  from fl_sketch import algorithms

  lines = algorithms.table().replace(' †', '').splitlines()
  return [line for line in lines if line.startswith('|')]


def operators(_):
  """What every operator promises, and hashes of what it makes of a tree."""
  from fl_sketch import sketches
  import jax
  import jax.numpy as jnp

  make, found = sketches.make, {}
  key, tree = jax.random.key(3), {'w': jnp.arange(42.0).reshape(6, 7)}
  tree['b'] = jnp.linspace(-1.0, 1.0, 22)
  by_size = 'ams', 'block_cyclic', 'dct', 'gaussian', 'srft', 'srht'
  ops = {k: make(k, size=16) for k in (*by_size, 'uniform_sampling')}
  ops |= {
    k: make(k, size=16, sparsity=4) for k in ('sparse_embedding_1', NET['kind'])
  }
  ops |= {'identity': make('identity'), 'sparse': make(**CYCLIC)}
  for how in 'median', 'mean':
    ops[how] = make('count_sketch', rows=4, cols=4, combine=how)
  for how in 'proportional', 'sqrt':
    options = {'factory': 'srht', 'size': 16, 'allocation': how}
    ops[f'layerwise {how}'] = make('layerwise', **options)
  ops['composed'] = sketches.composed(ops['gaussian'], make('srht', size=32))
  ops['scaled'] = sketches.scaled(ops['dct'], 0.5)
  for name, op in ops.items():
    told = sketches.properties(op)._asdict()
    value = lambda v: repr(v(tree) if callable(v) else v)
    found[name] = {k: value(v) for k, v in told.items()}
    sketched = jax.jit(op.sketch)(key, tree)
    found[name]['table'] = digest(sketched)
    found[name]['estimate'] = digest(op.desketch(key, sketched, tree))
  return found


def theory(_):
  """The table of statements; its modules, which may be renamed, left out.

  A cell like `module.function` becomes `function`.
  """
  import fl_sketch.theory

  path, prefix = fl_sketch.theory.__path__, 'fl_sketch.theory.'
  for module in pkgutil.walk_packages(path, prefix):
    importlib.import_module(module.name)
  lines = find('table', 'fl_sketch.theory.catalog')().splitlines()
  split = [line.split(' | ') for line in lines]
  name = lambda cell: '`' + cell.rpartition('.')[2] if '`' in cell else cell
  return [' | '.join([c[0], name(c[1]), *c[2:]]) for c in split]


def model_sizes(_):
  """Of each model: the fields it has by default, and its numbers of ten."""
  from fl_sketch import models
  import jax
  import jax.numpy as jnp

  found = {}
  for name in models.names():
    module = models.make(
      name, 10, **({'widths': (8,)} if name == 'mlp' else {})
    )
    text = name.startswith('bert')
    shape, kind = ((1, 8), jnp.int32) if text else ((1, 32, 32, 3), jnp.float32)
    made = jax.eval_shape(
      module.init, jax.random.key(0), jnp.zeros(shape, kind)
    )
    fields = [f for f in vars(module) if not f.startswith('_')]
    told = {f: repr(getattr(module, f)) for f in fields if f != 'parent'}
    found[name] = told | {'parameters': models.num_params(made)}
  return found


def accounting(_):
  """Epsilons, deltas, calibrations and formulas, by repr.

  A combination that the accountant refuses is recorded with its message.
  """
  from fl_sketch.privacy import accounting as a, bounds

  found = {}

  def tell(name, fn, *args, **kwargs):
    try:
      found[name] = repr(fn(*args, **kwargs))
    except a.UnsupportedAccountingError as e:
      found[name] = f'refused: {e}'

  formulas(tell)
  coins = {'sampling_probability': 0.05, 'population': 400}
  samplings = {
    'full': {}, 'poisson': coins, 'truncated_poisson': coins,
    'fixed_without_replacement': {'population': 400, 'max_cohort': 20},
  }  # fmt: skip
  samplings['truncated_poisson'] = coins | {'max_cohort': 60}
  grid = itertools.product(samplings, a.Adjacency, ('pld', 'rdp'))
  for kind, adjacency, accountant in grid:
    spec = {'sampling': a.Sampling(kind), 'adjacency': adjacency}
    spec |= samplings[kind]
    at = f'{kind} {adjacency.value} {accountant}'
    by = {'accountant': accountant}
    for z, steps in (1.0, 20), (3.0, 300):
      m = a.GaussianMechanism(noise_multiplier=z, steps=steps, **spec)
      tell(f'{at} {z} epsilon', a.compute_epsilon, m, delta=1e-4, **by)
      tell(f'{at} {z} delta', a.compute_delta, m, epsilon=1.0, **by)
    twice = a.compose([m, a.GaussianMechanism(2.0, 5, **spec)])
    tell(f'{at} composed', a.compute_epsilon, twice, delta=1e-4, **by)
    tell(f'{at} curve', a.epsilon_curve, m, [1, 7, 300], delta=1e-4, **by)
    want = {'epsilon': 2.0, 'delta': 1e-4, **by, **spec}
    calibrate = a.calibrate_noise_multiplier
    tell(f'{at} z', calibrate, steps=50, rtol=1e-2, **want)
    tell(f'{at} steps', a.calibrate_steps, noise_multiplier=4.0, **want)
  return found | {'bounds': bounds.table(bounds.SETTINGS[:3]).splitlines()}


def formulas(tell):
  """Closed forms of the accountant, and those of the papers."""
  from fl_sketch.privacy import accounting as a, bounds as b

  for x in 0.5, 1.0, 4.0:
    tell(f'gaussian_delta {x}', a.gaussian_delta, x, 1.0, 3)
    tell(f'gaussian_epsilon {x}', a.gaussian_epsilon, x, 1e-5, 3)
    tell(f'gaussian z {x}', a.gaussian_noise_multiplier, x, 1e-5, 3)
    tell(f'song {x}', b.song_theorem_6_2, x / 10, 1e-8, 5, 100)
    tell(f'song sigma {x}', b.song_sigma_squared, x, 1e-5, 2.0, constant=3.0)
    tell(f'das {x}', b.das_sigma_squared, x, 1e-5, 1.0, 50, 9, constant=2.0)
    tell(f'das rho {x}', b.das_rho, x, 1e-5, 200, 100, constant=1.0)
    tell(f'das z {x}', b.das_noise_multiplier_of, x, 10, 2.0)
    tell(f'h3 {x}', b.advanced_composition, x / 9, 1e-9, 9, delta_slack=1e-7)
    tell(f'amplified {x}', b.subsample_amplification, x, 1e-5, 0.2)
    for form in 'h4', 'tight', 'none':
      chain = b.chain_noise_multiplier
      tell(f'chain {form} {x}', chain, x, 1e-5, 0.2, 100, form=form)


def known(field):
  """The values of a field that the tree knows: its refusal of '?' lists them.

  Of `sketch` and `codec` they are kinds.
  """
  from fl_sketch import models

  extra = {
    'attack': HOSTILE, 'robust': {'groups': 3}, 'sketch': {'algorithm': 'safl'},
    'codec': {'algorithm': 'fedcom'}, 'model': {'widths': (8,)},
    'graph': _of('decentralised', ALL, sketch=CYCLIC),
  }.get(field, {})  # fmt: skip
  if field in ('bound', 'trust', 'adjacency', 'accountant'):
    extra = PRIVATE | {'algorithm': 'safl', 'sketch': CYCLIC}
  value = {'kind': '?'} if field in ('sketch', 'codec') else '?'
  if field == 'model':
    return models.names()
  try:
    build(SMALL | extra | {field: value})
  except ValueError as e:
    values = re.split(' in | to be one of ', str(e))[-1]
    return ast.literal_eval(values.rstrip('.'))
  raise AssertionError(f'Expected {field}={value!r} to be refused.')


def coverage(_):
  """Of each field, the values that no run has and nothing excludes."""
  config = build(SMALL).config
  plays = [vars(config) | SMALL | run for run in RUNS.values()]
  missing = {}
  for field in CHOICES:
    used = [p[field] for p in plays]
    if field in ('sketch', 'codec'):
      used = [u['kind'] for u in used if u]
    excluded = EXCLUDED.get(field, ((), ''))[0]
    left = set(known(field)) - {str(u) for u in used} - set(excluded)
    if left:
      missing[field] = sorted(left)
  return missing


TEXTS = {
  'coverage': coverage, 'accounting': accounting, 'operators': operators,
  'theory': theory, 'models': model_sizes, 'table': table,
}  # fmt: skip


def names(devices, first):
  """What is checked on so many devices: what needs no device, once."""
  return [*(TEXTS if devices == first else ()), 'sweep', *RUNS]


def mend(tree):
  """Draws Poisson cohorts in the base as the present tree does.

  Their O(cohort) draw has the law of the old one, and other numbers: so all
  that follows from it is compared bit for bit all the same.
  """
  cohorts = importlib.import_module('fl_sketch.data.cohorts')
  text = (tree / 'fl_sketch' / 'data' / 'cohorts.py').read_text()
  node = next(
    x for x in ast.parse(text).body if getattr(x, 'name', '') == 'poisson'
  )
  exec(ast.get_source_segment(text, node), cohorts.__dict__)
  schemes = [x for x in vars(cohorts).values() if isinstance(x, dict)]
  for scheme in schemes:
    if 'poisson' in scheme and callable(scheme['poisson']):
      scheme['poisson'] = cohorts.poisson


def work(todo, devices, out, mends):
  """What a worker does: every check that is asked for, into a file of JSON."""
  import jax

  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', devices)
  import fl_sketch

  if fl_sketch.__path__[0] != f'{os.getcwd()}/fl_sketch':
    raise SystemExit(f'Expected the tree of {os.getcwd()}, not {fl_sketch}.')
  warnings.simplefilter('ignore')
  if mends:
    mend(pathlib.Path(mends))
  found = {}
  with tempfile.TemporaryDirectory(prefix='net_') as folder:
    root = pathlib.Path(folder)
    os.environ['FL_SKETCH_CACHE'] = str(root / 'cache')
    write_sentences(root / 'sst2')
    for name in todo:
      begun = time.monotonic()
      (root / name).mkdir()
      found[name] = check(name, root / name)
      took = time.monotonic() - begun
      wrong = found[name].get('error', '')
      print(f'    {name} {took:.1f} s {wrong}', file=sys.stderr, flush=True)
  pathlib.Path(out).write_text(json.dumps(found))


def check(name, folder):
  """{'value': what a check found}, or {'error': what it raised}."""
  try:
    if name in RUNS:
      return {'value': play(RUNS[name], folder)}
    return {'value': (TEXTS | {'sweep': sweep})[name](folder)}
  except Exception as e:  # of whatever kind: it must be raised by both or none
    return {'error': f'{type(e).__name__}: {e}'}


def results(python, tree, todo, devices, mends=None):
  """What a worker of its own finds in a tree."""
  with tempfile.TemporaryDirectory(prefix='net_') as folder:
    out = pathlib.Path(folder) / 'out.json'
    # -P: what lies beside this file must not hide modules of the tree.
    command = [python, '-P', HERE, f'--worker={out}', f'--devices={devices}']
    command += [f'--mends={mends}'] if mends else []
    env = os.environ | {
      'PYTHONPATH': str(tree), 'MPLBACKEND': 'Agg', 'JAX_PLATFORMS': 'cpu',
      'PYTHONDONTWRITEBYTECODE': '1',
    }  # fmt: skip
    for name in 'XLA_FLAGS', 'JAX_COMPILATION_CACHE_DIR':
      env.pop(name, None)
    subprocess.run(
      [*command, f'--only={",".join(todo)}'], cwd=tree, env=env, check=True
    )
    return json.loads(out.read_text())


def base_results(args, todo, devices):
  """The same of the base, from the cache where it has been played before."""
  git = ['git', '-C', str(args.tree)]
  commit = output([*git, 'rev-parse', '--verify', f'{args.base}^{{commit}}'])
  packages = 'jax', 'jaxlib', 'numpy', 'flax', 'optax', 'scipy'
  asked = f'import sys, importlib.metadata as m; print(sys.version, {packages}'
  asked += f', *map(m.version, {packages}))'
  versions = output([args.python, '-c', asked])
  # Of the same checks, however their lines are wrapped.
  checks = ast.dump(ast.parse(HERE.read_text()))
  draw = (args.tree / 'fl_sketch' / 'data' / 'cohorts.py').read_text()
  parts = [commit, versions, os.uname().nodename, checks, draw]
  mark = hashlib.sha256('\n'.join(parts).encode()).hexdigest()[:16]
  args.cache.mkdir(parents=True, exist_ok=True)
  path = args.cache / f'{commit[:12]}-{devices}-{mark}.json'
  found = json.loads(path.read_text()) if path.exists() else {}
  if left := [name for name in todo if name not in found]:
    with tempfile.TemporaryDirectory(prefix='net_') as folder:
      tree = os.path.realpath(f'{folder}/base')
      output([*git, 'worktree', 'add', '--detach', tree, commit])
      try:
        found |= results(args.python, tree, left, devices, args.tree)
      finally:
        output([*git, 'worktree', 'remove', '--force', tree])
    good = {k: v for k, v in found.items() if 'error' not in v}
    path.write_text(json.dumps(good))
  return found


def output(command):
  """What a command prints."""
  done = subprocess.run(command, check=True, capture_output=True, text=True)
  return done.stdout.strip()


def difference(a, b, where=''):
  """Where two values first differ, and how; None if nowhere.

  NaNs are equal, 1 and 1.0 are not.

  >>> difference({'a': [1, 2.5]}, {'a': [1, 2.0]})
  'a.1: 2.5 in the base, now 2.0'
  """
  if isinstance(a, list) and isinstance(b, list):
    a, b = dict(enumerate(a)), dict(enumerate(b))
  if not (isinstance(a, dict) and isinstance(b, dict)):
    same = json.dumps(a) == json.dumps(b)
    return None if same else f'{where}: {a!r} in the base, now {b!r}'
  for key in [*a, *(k for k in b if k not in a)]:
    at = f'{where}.{key}' if where else f'{key}'
    if key not in a or key not in b:
      return f'{at}: only in {"the base" if key in a else "the tree"}'
    if (found := difference(a[key], b[key], at)) is not None:
      return found
  return None


def verdict(name, before, now):
  """The line of a check, and whether it is good."""
  if 'error' in before and 'error' in now:
    return f'RAISES in both {name}: {now["error"]}', False
  if (found := difference(before, now)) is not None:
    return f'DIFFERENT {name}: {found}', False
  if name == 'coverage' and now['value']:
    return f'NOT COVERED by any run: {now["value"]}', False
  return f'same {name}', True


def arguments():
  """The flags."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--base', default=BASE)
  parser.add_argument('--only', default='', help='names of checks')
  parser.add_argument('--devices', default='1,2')
  parser.add_argument('--tree', default='.', type=lambda p: pathlib.Path(p))
  parser.add_argument('--python', default=sys.executable)
  cache = pathlib.Path('~/.cache/fl_sketch_net').expanduser()
  parser.add_argument('--cache', default=cache, type=pathlib.Path)
  parser.add_argument('--worker', help=argparse.SUPPRESS)
  parser.add_argument('--mends', help=argparse.SUPPRESS)
  args = parser.parse_args()
  args.devices = [int(n) for n in args.devices.split(',')]
  args.only = list(filter(None, args.only.split(',')))
  args.tree = args.tree.resolve()
  if unknown := set(args.only) - {*TEXTS, 'sweep', *RUNS}:
    parser.error(f'Expected --only={sorted(unknown)} to be checks.')
  return args


def main():
  """Plays both trees and compares; the status is 1 if anything is wrong."""
  args = arguments()
  if args.worker:
    work(args.only, args.devices[0], args.worker, args.mends)
    return
  wrong = count = 0
  for devices in args.devices:
    every = names(devices, args.devices[0])
    todo = [name for name in every if name in args.only or not args.only]
    print(f'  base on {devices}', file=sys.stderr)
    before = base_results(args, todo, devices)
    print(f'  present on {devices}', file=sys.stderr)
    now = results(args.python, args.tree, todo, devices)
    for name in todo:
      line, good = verdict(name, before[name], now[name])
      print(f'{line} (devices={devices})', flush=True)
      wrong, count = wrong + (not good), count + 1
  print(f'{count - wrong} of {count} checks are the same.')
  sys.exit(bool(wrong))


if __name__ == '__main__':
  main()
