"""Datasets, partitions over clients, cohorts, and batches.

`sources` and `text` read datasets from disk (`pixels` normalises images,
`tokenization` numbers texts), `simulated` and `synthetic` generate them, and
`store` maps a folder of clients' own arrays into memory, which `store_writer`
writes and `store_digests` checks; `natural` reads published files of clients.
`partitions` and `label_skew` assign samples to clients, held as the arrays of
`ragged`, and `batches` chooses those of each local step. `registry` has data
sets by name, to which `register` adds those of other modules; `own_arrays`
reads and checks what a user's clients hold. `cohorts` samples the clients of a
round, `availability` simulates dropouts, stragglers and
over-selection, and `byzantine` simulates malicious clients.
"""

from fl_sketch.utils import lazy

__all__ = [
  'availability', 'batches', 'byzantine', 'cohorts', 'describe', 'from_clients',
  'label_skew', 'natural', 'own_arrays', 'partitions', 'pixels', 'ragged',
  'register', 'registry', 'simulated', 'sources', 'store', 'store_digests',
  'store_writer', 'synthetic', 'text', 'tokenization',
]  # fmt: skip

__getattr__ = lazy.attach(
  __name__, registry=['describe', 'from_clients', 'register']
)
