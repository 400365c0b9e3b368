"""Compressed models in jobs of NVFlare that are not ours."""

import importlib.util
import json

from engine_models import END, START, TWO_BITS, distance, mean, trained
from fl_sketch.sites import nvflare_updates, sealed
import numpy as np
import pytest

needs_nvflare = pytest.mark.skipif(
  importlib.util.find_spec('nvflare') is None,
  reason="needs nvflare: pip install 'fl_sketch[nvflare]'",
)


class Context:
  """What a filter uses of an FLContext."""

  def __init__(self, name, props, peer=None):
    self.name, self.props, self.peer = name, props, peer

  def get_prop(self, key, default=None):
    return self.props.get(key, default)

  def set_prop(self, key, value, private, sticky):
    assert sticky
    self.props[key] = value

  def get_identity_name(self):
    return self.name

  def get_job_id(self):
    return 'job'

  def get_peer_context(self):
    return self.peer


class Job:
  """A server and its clients, with filters as of a job."""

  def __init__(self, text=TWO_BITS, **options):
    make = lambda: nvflare_updates.ModelCompressor(text, **options)
    self.filters = {name: (make(), make()) for name in ('server', 'a', 'b')}
    self.props = {name: {} for name in self.filters}

  def filtered(self, name, peer, way, data, kind='WEIGHTS'):
    from nvflare.apis import dxo as dxo_lib, filter as filter_lib

    context = self.context(name, peer, way)
    made = self.filters[name][way == 'out']
    is_task = (name == 'server') == (way == 'out')
    chain = 'TASK_DATA_CHAIN' if is_task else 'TASK_RESULT_CHAIN'
    chain = getattr(filter_lib.FilterChainType, chain)
    made.set_prop(filter_lib.FilterContextKey.CHAIN_TYPE, chain)
    message = made.process(dxo_lib.DXO(kind, data).to_shareable(), context)
    return dxo_lib.from_shareable(message).data

  def context(self, name, peer, way):
    from nvflare.apis.fl_constant import FLContextKey

    other = Context(peer, self.props.get(peer, {}))
    self.props[name][FLContextKey.FILTER_DIRECTION] = way
    return Context(name, self.props[name], other)

  def train(self, client, model, kind='WEIGHTS', work=trained):
    data = self.filtered('server', client, 'out', model)
    got = self.filtered(client, 'server', 'in', data)
    made = work(got)
    if kind == 'WEIGHT_DIFF':
      made = {'w': made['w'] - got['w']}
    data = self.filtered(client, 'server', 'out', made, kind)
    return self.filtered('server', client, 'in', data, kind)


@needs_nvflare
def test_nvflare_trains_with_few_bytes(tmp_path):
  """Catches a client's difference that is added to another's model."""
  report = tmp_path / 'bytes.jsonl'
  job, model = Job(report=str(report)), START
  for number in range(8):
    made = [job.train(client, model) for client in ('a', 'b')]
    assert [m['n'] for m in made] == [number + 1] * 2
    model = mean(made)
  assert distance(model) < 0.02
  rows = [json.loads(line) for line in report.read_text().splitlines()]
  assert len(rows) == 7
  for row in rows[1:]:
    for way in 'up', 'down':
      assert row[way]['uncompressed'] / row[way]['sent'] > 14


@needs_nvflare
def test_who_serves_does_not_depend_on_who_sends_first():
  """Catches a client taken for the server: filters see no empty model."""
  job = Job()
  with pytest.raises(sealed.PayloadError, match='sent no model'):
    job.filtered('a', 'server', 'out', START)
  assert distance(job.train('a', trained(START))) < 0.3


@needs_nvflare
def test_the_filters_of_one_side_have_the_same_options():
  """Catches a compressor that is given and never used."""
  job = Job()
  job.filters['a'] = (
    job.filters['a'][0],
    nvflare_updates.ModelCompressor('int8'),
  )
  with pytest.raises(sealed.PayloadError, match='same options'):
    job.train('a', START)


@needs_nvflare
def test_a_collection_of_models_is_refused():
  """Catches a model that travels as a difference to another one."""
  from nvflare.apis import dxo as dxo_lib

  parts = {k: dxo_lib.DXO('WEIGHTS', START) for k in ('model', 'control')}
  with pytest.raises(sealed.PayloadError, match='collection'):
    Job().filtered('server', 'a', 'out', parts, 'COLLECTION')


@needs_nvflare
def test_nvflare_metadata_does_not_grow_with_clients():
  """Catches a history of filters that doubles with each client."""
  from nvflare.apis import dxo as dxo_lib, filter as filter_lib

  job, filter_out = Job(), nvflare_updates.ModelCompressor(TWO_BITS)
  chain = filter_lib.FilterChainType.TASK_DATA_CHAIN
  filter_out.set_prop(filter_lib.FilterContextKey.CHAIN_TYPE, chain)
  task = dxo_lib.DXO('WEIGHTS', START, {'round': 3}).to_shareable()
  for number in range(4):
    context = job.context('server', f'{number}', 'out')
    sent = dxo_lib.from_shareable(filter_out.process(task, context))
  assert sent.meta.pop(dxo_lib.MetaKey.FILTER_HISTORY) == ['ModelCompressor']
  assert sent.meta == {'round': 3}
  assert dxo_lib.from_shareable(task).data['w'] is START['w']


@needs_nvflare
def test_nvflare_differences_and_tensors():
  """Catches a difference that becomes a model, and tensors that do not."""
  job = Job()
  diff = job.train('a', START, kind='WEIGHT_DIFF')
  assert list(diff) == ['w']
  assert np.linalg.norm(diff['w'] - END / 2) < 0.45 * np.linalg.norm(END / 2)
  torch = pytest.importorskip('torch')
  model = {k: torch.from_numpy(x) for k, x in START.items()}

  def work(got):
    assert {type(x) for x in got.values()} == {torch.Tensor}
    return {'w': (got['w'] + torch.from_numpy(END)) / 2, 'n': got['n'] + 1}

  made = Job().train('a', model, work=work)
  assert isinstance(made['w'], torch.Tensor)
  assert made['n'] == 1


@needs_nvflare
@pytest.mark.parametrize('kind', ['bfloat16', 'float16', 'float64'])
def test_nvflare_tensors_keep_their_dtypes(kind, tmp_path):
  """Catches other dtypes, and bytes counted of float32."""
  torch = pytest.importorskip('torch')
  kind, report = getattr(torch, kind), tmp_path / 'bytes.jsonl'
  job = Job(report=str(report))
  model = {'w': torch.zeros(90, 50, dtype=kind), 'n': torch.tensor(0)}
  model['c'] = torch.tensor([2.0**24, 0], dtype=torch.float64)

  def work(got):
    assert {k: x.dtype for k, x in got.items()} == kinds
    w = got['w'] / 2 + torch.from_numpy(END).to(kind) / 2
    return got | {'w': w, 'c': got['c'] + 1}

  kinds = {k: x.dtype for k, x in model.items()}
  for number in range(3):
    model = job.train('a', model, work=work)
    assert {k: x.dtype for k, x in model.items()} == kinds
    assert [*model['c']] == [2**24 + number + 1, number + 1]
    off = distance({'w': model['w'].float().numpy()})
    assert off < (0.7, 0.6, 0.4)[number]
  row = json.loads(report.read_text().splitlines()[-1])
  for way in 'up', 'down':
    assert row[way]['uncompressed'] == 4500 * kind.itemsize + 8 + 16


@needs_nvflare
@pytest.mark.parametrize('text', [TWO_BITS, 'sign(error_feedback=True)'])
def test_nvflare_clients_that_train_nothing_leave_the_model(text):
  """Catches a model that becomes what clients have, with all its errors."""
  job = Job(text)
  for model in START, START | {'w': END}, START | {'w': END, 'n': np.array(1)}:
    made = job.train('a', model, work=lambda got: got)
    np.testing.assert_array_equal(made['w'], model['w'])


@needs_nvflare
def test_nvflare_clients_may_train_in_place():
  """Catches arrays that cannot be written, and training that is lost."""

  def work(got):
    got['w'] += (END - got['w']) / 2
    got['n'] += 1
    return got

  job, model = Job(), START
  for number in range(4):
    model = job.train('a', model, work=work)
    assert model['n'] == number + 1
    model['w'] += 0
  assert distance(model) < 0.2


@needs_nvflare
def test_an_nvflare_client_that_begins_again_gets_the_model_whole():
  """Catches a difference for a client that has no model."""
  job, model = Job(), START
  for _ in range(3):
    model = mean([job.train(client, model) for client in ('a', 'b')])
  job.props['a'] = {}
  assert distance(job.train('a', model)) < 0.2
  job.props['server'] = {}
  for client in 'a', 'b':
    assert distance(job.train(client, model)) < 0.2


@needs_nvflare
def test_a_side_without_the_filter_is_named():
  """Catches a whole model that is read as an update."""
  job = Job()
  data = job.filtered('server', 'a', 'out', START)
  job.filtered('a', 'server', 'in', data)
  with pytest.raises(sealed.PayloadError, match='a sent a model'):
    job.filtered('server', 'a', 'in', START)
  data = job.filtered('a', 'server', 'out', trained(START))
  job.filtered('server', 'b', 'out', trained(START))
  with pytest.raises(sealed.PayloadError, match=r'of a: .* version 0 '):
    job.filtered('server', 'a', 'in', data)
  with pytest.raises(sealed.PayloadError, match='server sent a model'):
    job.filtered('b', 'server', 'in', START)
