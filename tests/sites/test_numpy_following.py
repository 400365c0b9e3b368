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


def pair():
  return numpy_following.Publisher(**BOTH), numpy_following.Follower(**BOTH)


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
  'compressor',
  [
    pytest.param('eden(bits=2)', marks=pytest.mark.nightly),
    'sign(error_feedback=True)',
  ],
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


@pytest.mark.parametrize('seed', [0, 3])
def test_a_difference_that_is_not_compressed_is_no_model(seed):
  """Catches a difference that replaces what it should be added to."""
  options = {'compressor': 'eden(bits=2)', 'down': 'dense', 'seed': seed}
  publisher = numpy_following.Publisher(**options)
  follower = numpy_following.Follower(**options)
  for model in models(3):
    publisher.publish(model)
    got = follower.receive(publisher.messages(follower.version))
    np.testing.assert_allclose(got['w'], model['w'], atol=1e-5)


def test_arrays_that_the_model_lacks_or_a_receiver_leaves_out():
  """Catches an update that is refused, although its arrays are clear."""
  publisher, follower = pair()
  publisher.publish(END)
  got = follower.receive(publisher.messages(-1))
  for trained in {'b': got['b'] + 1, 'x': np.ones((3, 4))}, {'w': got['w']}:
    by = numpy_following.difference(trained, got)
    by = publisher.read(follower.reply(by, sender=0))
    made = numpy_following.moved(publisher.model, by)
    assert {k: x.shape for k, x in made.items()} == {
      k: x.shape for k, x in trained.items()
    }
    for k in trained.keys() - {'w'}:
      assert np.linalg.norm(made[k] - trained[k]) < 2
  many = follower.reply({'x': np.ones((2, 20_000))}, sender=0)
  with pytest.raises(sealed.PayloadError, match='more than 4 times'):
    publisher.read(many)


def test_another_shape_is_named():
  """Catches one number that is taken for all of a weight."""
  with pytest.raises(ValueError, match=r'w has shape \(\), but \(90, 50\)'):
    numpy_following.difference({'w': np.array(0.0)}, END)


@pytest.mark.parametrize('kind', ['f2', 'f4', 'f8'])
def test_models_keep_their_dtypes_and_counters(kind):
  """Catches float32 in the place of others, and a count that it rounds."""
  publisher, follower = pair()
  for number in range(3):
    model = {
      'w': np.asarray(END['w'] * number, kind), 'b': np.ones(3, kind),
      'count': np.array(2.0**24 + number), 'n': np.array(number),
    }  # fmt: skip
    publisher.publish(model)
    got = follower.receive(publisher.messages(follower.version))
    _, late = pair()
    for arrays in got, late.receive(publisher.messages(-1)), publisher.arrays:
      for k, x in model.items():
        assert arrays[k].dtype == x.dtype
        np.testing.assert_array_equal(arrays[k], got[k] if k == 'w' else x)
  by = numpy_following.difference({'count': got['count'] + 1}, got)
  by = publisher.read(follower.reply(by, sender=0))
  assert numpy_following.moved(model, by)['count'] == 2**24 + 3


def test_a_count_that_was_averaged_is_not_another_model():
  """Catches models that travel whole as their integers became floats."""
  publisher, follower = pair()
  publisher.publish(END)
  follower.receive(publisher.messages(-1))
  publisher.publish(END | {'n': np.array(0.5)})
  (message,) = publisher.messages(0)
  assert len(message) < END['w'].nbytes / 12
  assert follower.receive([message])['n'] == 0.5


def test_other_shapes_of_the_same_bytes_are_another_model():
  """Catches a checksum of bytes alone."""
  publisher, follower = pair()
  for shape in (4, 8), (8, 4):
    publisher.publish({'w': np.zeros(shape)})
    got = follower.receive(publisher.messages(follower.version))
    assert got['w'].shape == shape


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
