"""Clients with features of a small network in place of images.

Das et al., arXiv:2106.07094, section 6, take those of a ResNet-18 that was
trained on ImageNet; ours is trained on the first images of the dataset itself,
which no client holds.
"""

from collections.abc import Iterator
import pathlib
import shutil

from fl_sketch import models
from fl_sketch.data import partitions, sources, store
from fl_sketch.models import losses
from fl_sketch.runs import config as config_lib
from fl_sketch.utils.types import Params
import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from ...common.workspace import Fields, Workspace

PUBLIC = 10_000  # images that train the network and scale its features
POPULATION = 4000  # clients that share the other 40,000
SHARDS = 5
_BATCH = 500


def network(ws: Workspace, dataset: str) -> Fields:
  """The config that trains the network: Adam on batches of two halves."""
  small = {'width': 16, 'stem_stride': 2}
  return {
    'dataset': dataset, 'train_slice': f'0:{PUBLIC}',
    'model': ws.pick(None, 'resnet8', 'resnet18'),
    'model_options': ws.pick(None, small, None),
    'population': 2, 'cohort': 2, 'rounds': ws.pick(None, 480, 4000),
    'local_steps': 1, 'batch_size': 64, 'batch_order': 'cycle',
    'client_lr': 1.0, 'weight_decay': 1e-4, 'algorithm': 'fedavg',
    'server_optimizer': 'adam', 'b2': 0.99, 'server_lr': 0.003,
    'final_server_lr': 1e-5, 'eval_every': ws.pick(None, 240, 400),
    'checkpoint_every': ws.pick(None, 240, 400),
  }  # fmt: skip


def folder(ws: Workspace, dataset: str) -> pathlib.Path:
  """Return the clients' store, made if absent; DataError without the data."""
  name = f'das/{dataset}-features'
  path, trained = ws.folder / 'runs' / name, network(ws, dataset)
  fields = {
    'network': trained, 'public': PUBLIC, 'population': POPULATION,
    'shards': SHARDS,
  }  # fmt: skip
  # Kept after the store is written, so that half a store is made again.
  ws.cached(name, fields, lambda: _write(ws, dataset, trained, path))
  return path


def _write(ws, dataset, trained, path) -> int:
  """Trains the network and writes the store; how many features there are."""
  shutil.rmtree(path, ignore_errors=True)
  params = ws.train(f'das/{dataset}-network', trained).state.params
  c = config_lib.Config(**trained)
  data = sources.load(dataset, ws.data_dir)
  outputs = features(c, params, data, ws.progress)
  scale = np.quantile(outputs['train'][:PUBLIC], 0.999, axis=0)
  byte = lambda x: np.rint(255 * np.clip(x / scale, 0, 1)).astype(np.uint8)
  train = {'x': byte(outputs['train'][PUBLIC:]), 'y': data.train['y'][PUBLIC:]}
  test = {'x': byte(outputs['test']), 'y': data.test['y']}
  return deal(path, train, test, POPULATION)


def deal(path, train, test, population: int) -> int:
  """Writes a store of 'x' and 'y', in shards of appendix G; len(x[0])."""
  dealt = partitions.partition(
    'label_shards', train['y'], population, 0, shards_per_client=SHARDS
  )
  order = dealt.take(np.arange(dealt.samples))
  held = {name: x[order] for name, x in train.items()}
  classes = int(train['y'].max()) + 1
  store.write(path, [(dealt.sizes, held)], test, classes)
  return held['x'].shape[-1]


def features(
  c: config_lib.Config,
  params: Params,
  data: sources.Dataset,
  progress: bool = False,
) -> dict[str, np.ndarray]:
  """Computes the inputs of a ResNet's last layer, f32[images, features].

  Of 'train' and 'test'; the first `PUBLIC` images say how pixels are scaled.
  """
  last = params['Dense_0']
  size = last['kernel'].shape[0]
  identity = {'kernel': jnp.eye(size), 'bias': jnp.zeros(size)}
  body = models.make(c.model, size, **(c.model_options or {}))
  scale = sources.Pixels().plus(data.train['x'][:PUBLIC]).scale
  apply = jax.jit(
    lambda x: body.apply(
      {'params': params | {'Dense_0': identity}}, losses.preprocess(x, **scale)
    )
  )
  splits = {'train': data.train['x'], 'test': data.test['x']}
  return {
    name: np.concatenate([*_batches(apply, x, name, progress)])
    for name, x in splits.items()
  }


def _batches(apply, x, name, progress) -> Iterator[np.ndarray]:
  starts = range(0, len(x), _BATCH)
  for i in tqdm.tqdm(starts, desc=f'features, {name}', disable=not progress):
    yield np.asarray(apply(x[i : i + _BATCH]))
