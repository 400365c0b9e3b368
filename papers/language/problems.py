"""The problems: plays by speaker, models of characters, and their tasks."""

import itertools
import pathlib
from typing import Any

from fl_sketch.data import store, text
from fl_sketch.data.natural import importing
from fl_sketch.models import pretrained
from fl_sketch.runs import loaded
import numpy as np

from ..chen.studies import settings
from ..common.workspace import Workspace
from . import tuning
from .tuning import Fields, Task

# Kind of method -> its least rate of four.
_RATES = {
  'adam': 0.001, 'preconditioned': 0.001, 'sign': 0.0003, 'adamw': 0.0003,
  'sgd': 0.1, 'seeds': 1e-5,
}  # fmt: skip
_ADAPTING = _RATES | {'adamw': 0.001, 'seeds': 3e-5}
_RECURRENT = _RATES | {'sgd': 0.3, 'adamw': 0.001}
_BEFORE = 'language/before'
_KERNELS = 'attention', 'mlp_*'  # that get factors


def scratch(ws: Workspace) -> Task:
  """A decoder of half a million parameters, by speakers, from scratch."""
  return tuning.task(ws, 'scratch', plays(ws) | decoder(ws), _RATES)


def adapting(ws: Workspace) -> Task:
  """Factors of rank 8 beside a decoder that was trained on other plays.

  It was trained on the speakers of the first half of the text, and clients are
  those of the second half.
  """
  model = decoder(ws)
  fields = plays(ws, 'second') | model | _length(ws, rounds=100)
  lora = {'kind': 'naive', 'rank': ws.pick(2, 8), 'targets': _KERNELS}
  fields |= {'pretrained': _trained_before(ws, model), 'lora': lora}
  return tuning.task(ws, 'lora', fields, _ADAPTING)


def before_adapting(ws: Workspace) -> float:
  """Returns the test loss of the pretrained decoder, in bits a character."""
  fields = plays(ws, 'second')

  def compute():
    folder = pathlib.Path(fields['dataset_options']['folder'])
    run = loaded.load(ws.folder / 'runs' / _BEFORE)
    return run.evaluate(store.open(folder).test)['test_bits']

  return ws.cached('language/loss_before_adapting', fields, compute)


def recurrent(ws: Workspace) -> tuple[Task, Task]:
  """A GRU by speakers; and with the samples of all as those of one client."""
  options = ws.pick(
    {'hidden': 8, 'layers': 1}, {'hidden': 128, 'embedding': 32}
  )
  model = {'model': 'gru', 'model_options': options}
  work = {'local_steps': 2, 'batch_size': 4} | _length(ws, rounds=1200)
  fields = plays(ws) | decoder(ws) | model | work
  task = tuning.task(ws, 'recurrent', fields, _RECURRENT)
  samples = fields['cohort'] * fields['batch_size']
  alone = plays(ws, 'one') | {'cohort': 1, 'batch_size': samples}
  return task, task._replace(name='recurrent/central', fields=fields | alone)


def decoder(ws: Workspace) -> Fields:
  """The model, its loss, and the work of clients: 25,600 windows of text."""
  small = {'model': 'gpt_micro'}
  rehearsed = {
    'model': 'gpt_nano', 'model_options': {'width': 16, 'depth': 1},
  }  # fmt: skip
  # 107 million parameters, but for the table of characters.
  large = {
    'model': 'gpt_small', 'compute_dtype': 'bfloat16',
    'model_options': {'depth': 15, 'scan': True, 'remat': True},
  }  # fmt: skip
  work = {
    'loss': 'tokens', 'feed': 'device', 'cohort': 8, 'local_steps': 4,
    'batch_size': 2,
  }  # fmt: skip
  return ws.pick(rehearsed, small, large) | work | _length(ws, rounds=400)


def _length(ws, rounds) -> Fields:
  return {'rounds': ws.pick(6, rounds)}


def plays(ws: Workspace, part: str = 'all') -> Fields:
  """The store of speakers, which is made where there is none.

  It is of 'all' of the text, its 'first' or its 'second' half, or 'one': a
  single client with the samples of all speakers.
  """
  folder = ws.folder / 'data' / f'plays_{part}'
  if not folder.exists():
    folder.parent.mkdir(parents=True, exist_ok=True)
    _import(ws, part, folder)
  population = len(store.open(folder).partition.sizes)
  options = {'folder': str(folder)}
  return {
    'dataset': 'store', 'dataset_options': options, 'population': population,
  }  # fmt: skip


def _import(ws, part, folder):
  if part == 'one':
    whole = store.open(pathlib.Path(plays(ws)['dataset_options']['folder']))
    samples = np.array([whole.partition.samples])
    chunks = [store.Chunk(samples, whole.train)]
    store.write(folder, chunks, whole.test, whole.num_classes)
    return
  spoken = _rehearsal() if ws.scale == 'quick' else _text(ws.data_dir)
  blocks = spoken.split('\n\n')
  middle = len(blocks) // 2
  taken = {'all': blocks, 'first': blocks[:middle], 'second': blocks[middle:]}
  path = folder.with_suffix('.txt')
  path.write_text('\n\n'.join(taken[part]), encoding='utf-8')
  importing.import_data('plays', path, folder)


def _text(data_dir) -> str:
  """Tiny Shakespeare, Karpathy's file of plays."""
  path = text.find('tinyshakespeare/input.txt', data_dir)
  return path.read_text(encoding='utf-8')


def _rehearsal() -> str:
  """Sixteen speakers who count, eight in each half, for the quick scale."""
  lines = itertools.cycle(('one two three', 'four five', 'six seven eight'))
  speeches = [
    f'Speaker {name}:\n' + '\n'.join(itertools.islice(lines, 30))
    for half in (range(8), range(8, 16))
    for _ in range(4)
    for name in half
  ]
  return '\n\n'.join(speeches)


def _trained_before(ws, model) -> str:
  """The file of a decoder that Adam trained on the first half of the plays.

  A round has the gradients of 64 samples, of all speakers as one client's.
  """
  fields: dict[str, Any] = plays(ws, 'first') | model | settings.ADAM
  rounds = ws.pick(6, 1500)
  fields |= {
    'algorithm': 'fedavg', 'server_lr': 0.003, 'final_server_lr': 1e-5,
    'local_steps': 1, 'batch_size': 8, 'rounds': rounds, 'eval_every': rounds,
    'checkpoint_every': rounds, 'rounds_per_dispatch': ws.pick(1, 10),
    'seed': 1000,
  }  # fmt: skip
  params = ws.train(_BEFORE, fields).state.params
  path = ws.folder / 'runs' / _BEFORE / 'model.safetensors'
  pretrained.save(path, params)
  return str(path)
