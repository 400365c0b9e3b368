"""The benchmark of an accelerator does the work it names, within a budget."""

import json
import math

from benchmarks import gpu, report
import harness
import jax.numpy as jnp
import numpy as np
import pytest

D, B = 4096, 1024
TINY = gpu.Size(
  'gpt_nano', 8, 8, batch_size=1, steps=12, local_steps=4, workers=2,
  options={'width': 16, 'depth': 1, 'heads': 1},
)  # fmt: skip


def test_a_spent_budget_keeps_what_was_measured_and_names_the_rest(tmp_path):
  """Catches a budget that is ignored, and a stop that loses its results."""
  now, written = [0.0], []

  def task(part, name, seconds, numbers):
    def measure():
      now[0] += seconds
      return numbers

    return gpu.Task(part, name, measure)

  rounds = {'fedavg': [0.1], 'hand JAX': [0.2]}
  todo = [
    task('rounds', 'lenet', 6, rounds), task('rounds', 'logreg', 6, rounds),
    task('codecs', 'ten numbers', 1, {}),
  ]  # fmt: skip
  done = []
  for result in gpu.measure(todo, 10, lambda: now[0]):
    done.append(result)
    path, table = report.write_gpu(done, tmp_path, quick=True, budget=10)
    written.append(json.loads(path.read_text()))
  assert [len(x['results']) for x in written] == [1, 2, 2]
  assert written[-1]['results'][0]['numbers'] == rounds
  assert written[-1]['left_out'] == [['codecs', 'ten numbers']]
  assert written[-1]['platform'] == 'cpu'
  assert written[-1]['device'].endswith(' x cpu')
  assert '| fedavg | 0.1000 | 1.00 | 0.50 |' in table.read_text()
  assert 'the budget was spent: codecs, ten numbers' in table.read_text()


def test_a_table_of_codecs_is_over_the_copy():
  """Catches a ratio to the read, and one of seconds to milliseconds."""
  seconds = {
    'copy': {'encode': [0.001], 'decode': [0.002]},
    'sign': {'encode': [0.003], 'decode': [0.004]},
  }
  numbers = {'d': 10, 'seconds': seconds, 'left_out': ['count_sketch']}
  text = report.gpu_tables([gpu.Result('codecs', '10 numbers', numbers)])
  assert '| copy |  |  | 2 | 1 |' in text
  assert '| sign | 3 | 1.5 | 4 | 2 |' in text
  assert 'too slow: count_sketch.' in text


@pytest.mark.representatives('bfloat16', 'one-bit tables')
@pytest.mark.parametrize('name', [x for x in gpu.ENTRIES if x != 'copy'])
def test_what_is_decoded_is_what_was_encoded(name):
  """Catches a decoder with another key, whose numbers are unrelated to x.

  The products are 2 / pi for signs, else 1 on average, of at most 3 % to 16 %
  deviation.
  """
  x = np.random.default_rng(D).standard_normal(D, dtype=np.float32)
  runner = gpu.ENTRIES[name].make(jnp.asarray(x), B)
  out = np.asarray(runner.desketch(*runner.sketch(7)))
  assert 0.3 < x @ out / (x @ x) < 1.7
  assert out.shape == x.shape


@pytest.mark.nightly
@pytest.mark.parametrize('name', list(gpu.METHODS))
def test_a_decoder_is_trained_by_each_method(name):
  """Catches fields that no config has, and a method that sends floats."""
  result = gpu.train(name, TINY)
  dense, up = 4 * result['parameters'], result['bytes_up']
  expected = {
    'AdamW, dense': 1, 'MuLoCo, dense': 1 / 4,
    'MuLoCo, two bits both ways': 1 / 64,
  }  # fmt: skip
  # The one-bit tables: 1 / 100, and means of squares in one step of twelve.
  assert up == pytest.approx(dense * expected.get(name, 0.02), rel=0.4)
  assert up == pytest.approx(result['bytes_down'], rel=0.4)
  assert math.isfinite(result['train_loss'])
  assert result['peak_bytes'] is None  # a CPU does not report it


@pytest.mark.nightly
def test_the_smallest_command_of_an_accelerator(tmp_path):
  """Catches a task list that does not start, on a CPU or at the budget."""
  done = harness.command(
    'bench', 'gpu', '--quick', '--budget=1', '--repeats=1',
    '--parts=codecs,rounds', f'--out={tmp_path}',
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert '\n| EDEN, two bits | ' in done.stdout
  about = json.loads((tmp_path / 'gpu.json').read_text())
  assert [x['name'] for x in about['results']] == ['1,000,000 numbers']
  assert about['left_out'] == [['rounds', 'logreg']]


def test_a_cpu_is_not_measured_as_an_accelerator():
  """Catches minutes of a CPU at sizes that are meant for a GPU."""
  done = harness.command('bench', 'gpu')
  assert done.returncode == 1
  assert '--quick' in done.stderr
