"""The path from the command line to the first gradient stays short."""

import json
import os

import harness
import pytest

# Frames of ours on the stack at the first gradient, and their rooms; functions
# of ours that have been entered before it: without bodies of modules and
# classes, lambdas and comprehensions.
FRAMES, ROOMS, FUNCTIONS = 15, 5, 300
LATE = {'benchmarks', 'fl_sketch.attacks', 'fl_sketch.runs.audit', 'papers'}
LATE |= {'fl_sketch.papers', 'fl_sketch.runs.sweep', 'matplotlib', 'pandas'}
PROGRAM = """
import json, os, runpy, sys
from absl import app
import jax
import launch

ROOT = os.getcwd()
TOPS = tuple(os.path.join(ROOT, top, '') for top in sys.argv.pop(1).split(','))
entered, found, rooms = set(), {}, set()


def enter(frame, event, _):
  code = frame.f_code
  is_function = code.co_flags & 1 and not code.co_name.startswith('<')
  if event == 'call' and is_function and code.co_filename.startswith(TOPS):
    entered.add(code)


def gradient_of(loss_fn, real=jax.value_and_grad):
  fn = real(loss_fn)

  def call(*args, **kwargs):
    frame, depth = sys._getframe(1), 0
    if not found and frame.f_code.co_filename.endswith('sgd.py'):
      sys.setprofile(None)
      while frame:
        if frame.f_code.co_filename.startswith(TOPS):
          depth += 1
          rooms.add(os.path.dirname(frame.f_code.co_filename))
        frame = frame.f_back
      found.update(frames=depth, functions=len(entered), loaded=[*sys.modules])
      found.update(rooms=[*rooms])
    return fn(*args, **kwargs)

  return call


jax.value_and_grad = gradient_of
sys.setprofile(enter)
try:
  program = runpy.run_module('launch.train', run_name='__main__')
  app.run(program['main'], flags_parser=launch.parse_flags)
finally:
  print(json.dumps(found))
"""


@pytest.mark.nightly
def test_the_first_gradient_is_near(tmp_path):
  """Catches a layer of calls, and a library that a run does not need."""
  printed = harness.python(
    '-c', PROGRAM, 'fl_sketch,launch,configs',
    'quickstart:quick', '--config.rounds=2', f'--workdir={tmp_path}/run',
  )  # fmt: skip
  found = json.loads(printed.splitlines()[-1])
  assert found['frames'] <= FRAMES
  assert found['functions'] <= FUNCTIONS
  assert len(found['rooms']) <= ROOMS
  assert not LATE & {*found['loaded']}
  assert os.path.exists(tmp_path / 'run' / 'summary.json')
