"""Shakespeare by speaker: an LSTM predicts the next character.

  fl-sketch import-data shakespeare DIR --to=runs/shakespeare
  fl-sketch train shakespeare:fedavg --workdir=DIR
  fl-sketch import-data plays input.txt --to=runs/plays
  fl-sketch train shakespeare:plays --workdir=DIR

Source: Reddi et al., arXiv:2003.00295, Shakespeare: model, cohort, batch,
rounds, the authors' best rates and epsilon; accuracy per character of the test,
on TensorFlow Federated's snippets. 'plays', another word of a variant, has 141
speakers of tiny Shakespeare, see docs/guides/language.md. Others:
configs/femnist.py.
"""

from . import ConfigDict, femnist


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; words of `variant` are as above."""
  given = femnist.words(variant, 'plays')
  kind = 'plays' if 'plays' in given else 'shakespeare'
  c = femnist.clients(kind, 141 if kind == 'plays' else 715, cohort=10)
  c.model, c.loss = 'lstm_shakespeare', 'tokens'
  c.local_steps, c.batch_size, c.rounds = 20, 4, 1200
  rates = {'fedavg': (1.0, 1.0), 'fedadam': (1.0, 0.01, 1e-3)}
  return femnist.finish(c, given, rates, parameters=820_522)
