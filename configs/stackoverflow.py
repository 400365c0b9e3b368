"""Stack Overflow by user: an LSTM predicts the next word.

  fl-sketch import-data stackoverflow DIR --to=runs/stackoverflow
  fl-sketch train stackoverflow:onebit --workdir=DIR

Source: Reddi et al., arXiv:2003.00295, Stack Overflow NWP: model, vocabulary,
cohort, batch, rounds, the authors' best rates and epsilon. Accuracy is that of
the first 10,000 sentences of the test; unlike theirs it counts words out of the
vocabulary and ends of sentences. Variants: configs/femnist.py.
"""

from . import ConfigDict, femnist


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; words of `variant` are those of `femnist`."""
  given = femnist.words(variant)
  c = femnist.clients('stackoverflow', population=342_477, cohort=50)
  c.model, c.loss = 'lstm_stackoverflow', 'tokens'
  c.test_slice = ':10000'
  c.local_steps, c.batch_size, c.rounds = 25, 16, 1500
  rates = {'fedavg': (10**-0.5, 1.0), 'fedadam': (10**-0.5, 0.01, 1e-5)}
  return femnist.finish(c, given, rates, parameters=4_050_748)
