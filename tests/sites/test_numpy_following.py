"""Models that receivers follow by compressed differences."""

from fl_sketch.sites import numpy_following, sealed
import numpy as np
import pytest

DRAWS = np.random.default_rng(0)
END = {'w': DRAWS.standard_normal((90, 50)), 'b': np.zeros(3), 'n': np.array(0)}
BOTH = {'compressor': 'eden(bits=2)', 'seed': 3}


def models(count):
  """Models that come near END, with a counter."""
  for i in range(count):
    wide = {k: x + 0.5**i for k, x in END.items() if k != 'n'}
    yield wide | {'n': np.array(i)}


def distance(one, other):
  return np.linalg.norm(one['w'] - other['w'])


def test_receivers_have_the_publishers_model_and_follow():
  """Catches errors that add up, and a receiver that drifts from the others."""
  publisher = numpy_following.Publisher(**BOTH)
  always, often = (numpy_following.Follower(**BOTH) for _ in range(2))
  sizes = []
  for i, model in enumerate(models(12)):
    publisher.publish(model)
    messages = publisher.messages(always.version)
    sizes.append(len(b''.join(messages)))
    got = always.receive(messages)
    if i % 3 == 0:
      got = often.receive(publisher.messages(often.version))
    np.testing.assert_array_equal(got['w'], publisher.arrays['w'])
    assert got['n'] == i
  assert distance(got, model) < 0.5**9 * distance(model, {'w': 0})
  assert max(sizes[1:]) < sizes[0] / 12
  late = numpy_following.Follower(**BOTH)
  messages = publisher.messages(-1)
  assert len(messages) == 1
  np.testing.assert_array_equal(late.receive(messages)['w'], got['w'])


@pytest.mark.parametrize('kind', ['weights', 'difference'])
@pytest.mark.parametrize(
  'compressor', ['eden(bits=2)', 'sign(error_feedback=True)']
)
def test_receivers_stay_near_the_model(compressor, kind):
  """Catches errors of the way down that are lost, or are sent twice."""
  publisher, follower = (
    make(compressor, seed=3)
    for make in (numpy_following.Publisher, numpy_following.Follower)
  )
  model, lags = {'w': np.float32(END['w']), 'n': np.array(0)}, []
  for number in range(150):
    publisher.publish(model | {'n': np.array(number)})
    got = follower.receive(publisher.messages(follower.version))
    lags.append(distance(got, publisher.model))
    step = DRAWS.standard_normal(got['w'].shape, 'f4') * (number < 100)
    trained = got | {'w': got['w'] + step}
    by = numpy_following.difference(trained, got)
    by = publisher.read(follower.reply(by, sender=0))
    if kind == 'weights':
      model = numpy_following.moved(publisher.model, by)
    else:
      model = {'w': model['w'] + by['w']}
  norm = np.linalg.norm(END['w'])  # also that of a step
  assert max(lags[50:100]) < (1 if 'eden' in compressor else 2.5) * norm
  assert lags[-1] < 1e-3 * norm


def test_who_lacks_more_than_a_model_gets_the_model():
  """Catches differences that are kept for ever."""
  publisher = numpy_following.Publisher(**BOTH)
  follower = numpy_following.Follower(**BOTH)
  for i, model in enumerate(models(30)):
    publisher.publish(model)
    if i == 0:
      follower.receive(publisher.messages(-1))
  messages = publisher.messages(follower.version)
  assert len(messages) == 1
  got = follower.receive(messages)
  np.testing.assert_array_equal(got['w'], publisher.arrays['w'])


def test_a_version_that_does_not_follow_is_refused():
  """Catches a difference that is added to another model."""
  publisher = numpy_following.Publisher(**BOTH)
  first, *rest = models(3)
  publisher.publish(first)
  for model in rest:
    publisher.publish(model)
  with pytest.raises(sealed.PayloadError, match='receiver of version -1'):
    numpy_following.Follower(**BOTH).receive(publisher.messages(1))
  other = numpy_following.Follower('sign', seed=3)
  other.receive(publisher.messages(-1))
  publisher.publish(first)
  with pytest.raises(sealed.PayloadError, match='Expected an update'):
    other.receive(publisher.messages(other.version))
