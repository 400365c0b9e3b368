"""Studies of Das et al.: what they add to their runs."""

from fl_sketch import models
from fl_sketch.data import sources, synthetic
from fl_sketch.models import losses
from fl_sketch.runs import config as config_lib
import jax
import jax.numpy as jnp
import numpy as np
from papers.common.workspace import Workspace
from papers.das.studies import features, grid, paths as das_paths, races
import pytest

LAB = Workspace(None, 'quick', progress=False)  # type: ignore
PROBLEM = synthetic.quadratics(0, population=5)
WIDE = {k: v.astype(float) for k, v in PROBLEM.data.items()}


def test_paths_tell_signal_and_noise():
  """Catches noise counted as signal, and seeds that share their noise."""
  config = grid.FIELDS | {
    'population': 5, 'cohort': 5, 'rounds': 3, 'noise_multiplier': 0.5,
  }  # fmt: skip
  values = grid.product({'clip_norm': (9.0, 90.0), 'noise_seed': (0, 1)})
  (paths,) = das_paths.play(config, values)
  assert paths.w.shape == (4, 4, 200)
  curved = WIDE['factor'] @ WIDE['factor'].swapaxes(1, 2)
  for run, some in enumerate(values):
    for k in range(3):
      w = np.repeat(paths.w[run, k][None].astype(float), 5, 0)
      for _ in range(20):
        gradient = np.einsum('nde,ne->nd', curved, w - WIDE['optimum'])
        w = w - 0.001 * gradient
      u = (paths.w[run, k] - w) / 0.001
      scale = some['clip_norm'] / np.linalg.norm(u, axis=1, keepdims=True)
      mean = (u * np.minimum(1, scale)).mean(0)
      moved = (paths.w[run, k] - paths.w[run, k + 1]) / 0.001
      signal, noise = paths.signal[run, k], paths.noise[run, k]
      assert signal == pytest.approx(np.linalg.norm(mean), rel=1e-3)
      assert noise == pytest.approx(np.linalg.norm(moved - mean), rel=1e-2)
      # The norm of 200 normals is within 6 deviations once in 1e9.
      stddev = 0.5 * some['clip_norm'] / 5
      assert noise / stddev == pytest.approx(200**0.5, abs=6 / 2**0.5)
  assert not np.allclose(paths.w[0, 1], paths.w[1, 1])


def test_a_plane_holds_paths_that_lie_in_one():
  """Catches distances that a projection changes inside its plane."""
  rng = np.random.default_rng(0)
  flat = rng.standard_normal((2, 40, 2)).cumsum(1)
  away = flat @ np.linalg.qr(rng.standard_normal((7, 2)))[0].T
  projection = grid.projected(away)
  ends = np.linalg.norm(flat[:, -grid.SMOOTH :].mean(1), axis=-1)
  for distances in ('plane', 'space'):
    np.testing.assert_allclose(projection[distances], ends)


@pytest.mark.long
def test_features_are_what_the_last_layer_is_given():
  """Catches features of another layer, or of images on another scale."""
  c = config_lib.Config(
    model='resnet8', model_options={'width': 8, 'stem_stride': 2}
  )
  images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
  part = {'x': images, 'y': np.zeros(3, np.int32)}
  data = sources.Dataset('cifar10', part, part, 10)
  module = models.make('resnet8', 10, **c.model_options)  # type: ignore
  params = models.init_params(module, jax.random.key(0), (8, 8, 3))
  outputs = features.features(c, params, data)
  x = losses.preprocess(
    jnp.asarray(images), **sources.Pixels().plus(images).scale
  )
  logits = jax.jit(module.apply)({'params': params}, x)
  kernel, bias = (np.asarray(params['Dense_0'][k]) for k in ('kernel', 'bias'))
  for split in ('train', 'test'):
    np.testing.assert_allclose(
      outputs[split] @ kernel + bias, logits, atol=1e-5
    )


def test_noise_of_the_formula():
  """Catches a cohort or a number of rounds that the formula loses."""
  fields = races.digits(LAB).fields | {
    'population': 3000, 'cohort': 600, 'rounds': 60,
  }  # fmt: skip
  setting = races.digits(LAB)._replace(fields=fields, accountant=None)
  z = races.by_formula(setting, 5.0)
  assert z == pytest.approx(1.05130, abs=1e-5)
  assert races.worth(setting, z) == pytest.approx(10.18, abs=0.01)
