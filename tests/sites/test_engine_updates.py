"""Compressed models in jobs of Flower that are not ours."""

import copy
import json

from engine_models import END, START, TWO_BITS, distance, mean, trained
from fl_sketch.sites import flower_updates
import numpy as np
import pytest


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
  state = inner.contexts[7].state
  (memory,) = (x for name, x in state.items() if 'memory' in name)
  memory = memory['w'].numpy()
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


def test_flower_grids_of_one_app_have_models_of_their_own(flwr):
  """Catches a difference to the model of another cluster of clients."""
  inner = Grid(flwr, flower_updates.compressed(TWO_BITS))
  inner.work = lambda model: model
  grids = [flower_updates.CompressedGrid(inner, TWO_BITS) for _ in range(2)]
  for number in range(1, 4):
    for sign, grid in zip((1, -1), grids, strict=True):
      model = START | {'w': sign * number * END}
      for made in exchange(flwr, grid, model):
        np.testing.assert_array_equal(made['w'], model['w'])


@pytest.mark.parametrize('wrong', [
  {}, {'messages': [1], 'noise': 0.1}, {'messages': [b'x'], 'noise': 'x'},
  {'messages': [b'x'], 'noise': 0.1},
])  # fmt: skip
def test_a_malformed_flower_reply_is_an_error_of_its_client(flwr, wrong):
  """Catches a client that ends the server."""

  def mod(message, context, call_next):
    del context, call_next
    record = {'fl_sketch.updates': flwr.ConfigRecord(wrong)}
    return flwr.Message(flwr.RecordDict(record), reply_to=message)

  grid = flower_updates.CompressedGrid(Grid(flwr, mod), TWO_BITS)
  assert not exchange(flwr, grid, START)


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
