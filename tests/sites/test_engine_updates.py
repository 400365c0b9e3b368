"""Compressed models in jobs of Flower and NVFlare that are not ours."""

import copy
import importlib.util
import json

from fl_sketch.sites import flower_updates, nvflare_updates, sealed
import numpy as np
import pytest

TWO_BITS = 'eden(bits=2)'
END = np.random.default_rng(0).standard_normal((90, 50)).astype('f4')
START = {'w': np.zeros((90, 50), 'f4'), 'n': np.array(0)}
needs_nvflare = pytest.mark.skipif(
  importlib.util.find_spec('nvflare') is None,
  reason="needs nvflare: pip install 'fl_sketch[nvflare]'",
)


def trained(model):
  """A model after local work: half as far from END."""
  return {'w': (model['w'] + END) / 2, 'n': np.asarray(model['n'] + 1)}


def distance(model):
  return np.linalg.norm(model['w'] - END) / np.linalg.norm(END)


@pytest.fixture
def flwr(monkeypatch):
  pytest.importorskip('flwr', reason='needs Flower: extra `flower`')
  from flwr import app
  from flwr.supercore import task_identity

  for name in ('_task_id', '_run_id', '_node_id'):
    monkeypatch.setattr(task_identity.TaskIdentity, name, 1)
  return app


class Grid:
  """Two ClientApps with a context each, in this process."""

  def __init__(self, flwr, mod):
    self.flwr, self.mod, self.work, self.dead = flwr, mod, trained, set()
    self.contexts = {node: self.context(node) for node in (7, 30)}

  def context(self, node):
    return self.flwr.Context(
      run_id=1, node_id=node, node_config={}, run_config={},
      state=self.flwr.RecordDict(),
    )  # fmt: skip

  def get_node_ids(self):
    return [*self.contexts]

  def send_and_receive(self, messages, *, timeout=None):
    for i, message in enumerate(messages):
      message.metadata.__dict__['_message_id'] = f'{i}'
    answers = [self.answer(message) for message in messages]
    return [] if timeout == 0 else answers

  def answer(self, message):
    node = message.metadata.dst_node_id
    message = copy.copy(message)
    message.__dict__['_content'] = copy.copy(message.content)
    try:
      assert node not in self.dead, 'it is gone'
      return self.mod(message, self.contexts[node], self.app)
    except (AssertionError, ValueError) as e:  # as in Flower's process
      error = self.flwr.Error(2, str(e))
      return self.flwr.Message(error, reply_to=message)

  def app(self, message, context):
    flwr = self.flwr
    model = {k: x.numpy() for k, x in message.content['arrays'].items()}
    content = {'metrics': flwr.MetricRecord({'num-examples': 1})}
    if message.metadata.message_type == 'train':
      made = {k: flwr.Array(x) for k, x in self.work(model).items()}
      content['arrays'] = flwr.ArrayRecord(made)
    content = flwr.RecordDict(content)
    return flwr.Message(content, reply_to=message)


def task(flwr, model, node, kind='train'):
  made = {k: flwr.Array(x) for k, x in model.items()}
  content = flwr.RecordDict({'arrays': flwr.ArrayRecord(made)} if model else {})
  return flwr.Message(content, message_type=kind, dst_node_id=node)


def answered(replies):
  """The models of replies."""
  return [
    {k: x.numpy() for k, x in reply.content['arrays'].items()}
    for reply in replies
    if not reply.has_error() and 'arrays' in reply.content
  ]


def exchange(flwr, grid, model, kind='train', timeout=None):
  """The models that clients answer."""
  messages = [task(flwr, model, node, kind) for node in grid.get_node_ids()]
  return answered(grid.send_and_receive(messages, timeout=timeout))


def mean(models):
  average = lambda k: np.asarray(np.mean([m[k] for m in models], axis=0))
  return {k: average(k) for k in START}


def test_flower_trains_with_few_bytes(flwr, tmp_path):
  """Catches a reply that is added to another model, and bytes not counted."""
  report = tmp_path / 'bytes.jsonl'
  inner = Grid(flwr, flower_updates.compressed(TWO_BITS))
  grid = flower_updates.CompressedGrid(inner, TWO_BITS, report=report)
  model = START
  for number in range(8):
    made = exchange(flwr, grid, model)
    assert len(made) == 2
    assert [m['n'] for m in made] == [number + 1] * 2
    model = mean(made)
    assert not exchange(flwr, grid, model, kind='evaluate')
  assert distance(model) < 0.02
  rows = [json.loads(line) for line in report.read_text().splitlines()]
  assert len(rows) == 16
  for row in rows[2::2]:
    assert row['up']['uncompressed'] / row['up']['sent'] > 14
    assert row['down']['sent'] == 0  # they have it from the evaluation
    assert row['up']['noise'] == pytest.approx(0.365, abs=0.02)
  for row in rows[1::2]:
    assert row['down']['uncompressed'] / row['down']['sent'] > 14


@pytest.mark.parametrize('text', [TWO_BITS, 'sign(error_feedback=True)'])
def test_flower_clients_that_train_nothing_leave_the_model(flwr, text):
  """Catches a model that becomes what clients have, with all its errors."""
  inner = Grid(flwr, flower_updates.compressed(text))
  inner.work = lambda model: model
  grid = flower_updates.CompressedGrid(inner, text)
  for model in START, START | {'w': END}, START | {'w': END, 'n': np.array(1)}:
    for made in exchange(flwr, grid, model):
      np.testing.assert_array_equal(made['w'], model['w'])


def test_flower_error_feedback_is_of_an_array(flwr):
  """Catches a memory that a context loses, or that fits the first model."""
  text = 'sign(error_feedback=True)'
  inner = Grid(flwr, flower_updates.compressed(text))
  grid, model = flower_updates.CompressedGrid(inner, text), START
  for _ in range(30):
    model = mean(exchange(flwr, grid, model))
  assert distance(model) < 0.1
  memory = inner.contexts[7].state['fl_sketch.memory']['w'].numpy()
  assert memory.shape == END.shape
  assert memory.any()
  inner.work = lambda x: {'w': x['w'] + END.T}
  assert len(exchange(flwr, grid, {'w': END.T})) == 2


def test_a_flower_client_that_lost_its_model_gets_it_whole(flwr):
  """Catches a client that never comes back after a restart."""
  inner = Grid(flwr, flower_updates.compressed(TWO_BITS))
  grid = flower_updates.CompressedGrid(inner, TWO_BITS)
  model = mean(exchange(flwr, grid, START))
  inner.contexts[30] = inner.context(30)
  assert len(exchange(flwr, grid, model)) == 1
  model = mean(exchange(flwr, grid, model))
  assert len(exchange(flwr, grid, model)) == 2
  inner.dead = {7}
  model = mean(exchange(flwr, grid, model))
  inner.dead = set()
  assert len(exchange(flwr, grid, trained(model))) == 2


def test_a_flower_client_without_the_mod_is_an_error(flwr, capsys):
  """Catches a model in the place of an update."""
  inner = Grid(flwr, lambda message, context, app: app(message, context))
  inner.app = lambda message, context: flwr.Message(
    flwr.RecordDict({'arrays': flwr.ArrayRecord()}), reply_to=message
  )
  grid = flower_updates.CompressedGrid(inner, TWO_BITS)
  assert not exchange(flwr, grid, START)
  assert 'The reply of client 7 is refused.' in capsys.readouterr().err


def test_flower_messages_without_a_model_need_no_mod(flwr):
  """Catches a reply that is refused although nothing of it is compressed."""
  inner = Grid(flwr, flower_updates.compressed(TWO_BITS))
  grid = flower_updates.CompressedGrid(inner, TWO_BITS)
  inner.app = lambda message, context: flwr.Message(
    flwr.RecordDict({'known': flwr.ConfigRecord()}), reply_to=message
  )
  messages = [task(flwr, x, 7, 'query') for x in ({}, START, {})]
  replies = grid.send_and_receive(messages)
  assert [[*reply.content] for reply in replies] == [['known']] * 3


def test_flower_models_of_one_client_travel_as_they_are(flwr):
  """Catches an exchange whose models make one another's replies stale."""
  inner = Grid(flwr, flower_updates.compressed(TWO_BITS))
  grid = flower_updates.CompressedGrid(inner, TWO_BITS)
  inner.contexts[12] = inner.context(12)
  shared, own = mean(exchange(flwr, grid, START)), START | {'w': -END}
  tasks = zip((shared, own, shared), grid.get_node_ids(), strict=True)
  messages = [task(flwr, *pair) for pair in tasks]
  one, other, third = answered(grid.send_and_receive(messages))
  np.testing.assert_array_equal(other['w'], 0 * END)
  for made in one, third:
    assert distance(made) < 0.4 * distance(shared) + 0.4 * distance(START)
  assert len(exchange(flwr, grid, mean([one, third]))) == 3


def test_flower_clients_whose_replies_came_late_take_part_again(flwr):
  """Catches a difference that comes twice and is refused."""
  inner = Grid(flwr, flower_updates.compressed(TWO_BITS))
  grid = flower_updates.CompressedGrid(inner, TWO_BITS)
  model = mean(exchange(flwr, grid, START))
  assert not exchange(flwr, grid, model, timeout=0)
  made = exchange(flwr, grid, model | {'n': np.array(5)})
  assert [x['n'] for x in made] == [6, 6]
  assert distance(mean(made)) < distance(model)
  messages = [task(flwr, mean(made), 7) for _ in range(2)]
  assert len(answered(grid.send_and_receive(messages))) == 2


def test_a_flower_client_without_a_model_trains_none(flwr):
  """Catches an empty model where the server's has not changed."""
  inner = Grid(flwr, flower_updates.compressed(TWO_BITS))
  grid = flower_updates.CompressedGrid(inner, TWO_BITS)
  inner.work = lambda model: {'w': model['w']}
  assert len(exchange(flwr, grid, START)) == 2
  inner.contexts[30] = inner.context(30)
  assert len(exchange(flwr, grid, START)) == 1
  assert len(exchange(flwr, grid, START)) == 2


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
    from nvflare.apis import dxo as dxo_lib

    context = self.context(name, peer, way)
    made = self.filters[name][way == 'out']
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
def test_nvflare_metadata_does_not_grow_with_clients():
  """Catches a history of filters that doubles with each client."""
  from nvflare.apis import dxo as dxo_lib

  job, filter_out = Job(), nvflare_updates.ModelCompressor(TWO_BITS)
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
