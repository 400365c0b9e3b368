"""Compare our epsilon with dp_accounting's: docs/results/accountants.csv.

`python -m docs.generators.accountants NEW` answers the table's settings again,
and appends to the table NEW the rows that it lacks. A call of dp_accounting is
stopped after ten times our seconds, or 5 s if that is more.
"""

import csv
import itertools
import math
import multiprocessing
from pathlib import Path
import resource
import sys
import time

import dp_accounting as dp
from dp_accounting.pld import PLDAccountant
from fl_sketch.accounting import events, profiles, types

TABLE = Path(__file__).parents[1] / 'results' / 'accountants.csv'
INTERVALS = '1e-4', '1e-5', 'epsilon/1000'
KINDS = (
  'at most 0.5 % larger', 'more than 0.5 % larger',
  'smaller, by more than 1e-6',
  'infinite, at delta = 1e-15', 'out of time or memory',
)  # fmt: skip


def mechanism(row: dict[str, str]) -> types.GaussianMechanism:
  """Return the mechanism of a row."""
  return types.GaussianMechanism(
    float(row['noise']), int(row['steps']), types.Sampling(row['sampling']),
    float(row['q']), int(row['population'] or 0) or None,
    int(row['max_cohort'] or 0) or None, types.Adjacency(row['adjacency']),
  )  # fmt: skip


def our_epsilon(part: types.GaussianMechanism, delta: float) -> float:
  """Return ours, also at delta < 1e-12, which `compute_epsilon` refuses."""
  return profiles.profile(part).curve.epsilon(delta)


def library_epsilon(
  part: types.GaussianMechanism, delta: float, interval: float
) -> float:
  """Return that of dp_accounting, with losses on multiples of `interval`."""
  noise, q = part.noise_multiplier, part.sampling_probability
  event = dp.GaussianDpEvent(noise)
  if part.max_cohort is not None:
    population, cohort = part.sizes
    event = dp.TruncatedSubsampledGaussianDpEvent(population, q, cohort, noise)
  elif q < 1:
    event = dp.PoissonSampledDpEvent(q, event)
  accountant = PLDAccountant(events.relation(part.adjacency), interval)
  accountant.compose(event, part.steps)
  return accountant.get_epsilon(delta)


def timed(limit: float, call, *arguments) -> tuple[str, str]:
  """Return (epsilon, seconds) of a fresh process, or (why not, seconds)."""
  receiver, sender = multiprocessing.Pipe()

  def work():
    resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
    start = time.perf_counter()
    try:
      answer = f'{call(*arguments):.6g}'
    except Exception as error:
      answer = type(error).__name__
    sender.send((answer, f'{time.perf_counter() - start:.3g}'))

  process = multiprocessing.get_context('fork').Process(target=work)
  process.start()
  answer = receiver.recv() if receiver.poll(limit) else ('timeout', f'{limit}')
  process.kill()
  process.join()
  return answer


def rows() -> list[dict[str, str]]:
  """Return the rows of the stored table."""
  with TABLE.open() as file:
    return list(csv.DictReader(file))


def kind(row: dict[str, str], interval: str) -> str:
  """Return which of `KINDS` dp_accounting's answer in a row is."""
  try:
    ratio = float(row[interval]) / float(row['ours'])
  except ValueError:
    return KINDS[4]
  if math.isinf(ratio):
    return KINDS[3]
  if ratio < 1 - 1e-6:
    return KINDS[2]
  return KINDS[0] if ratio <= 1.005 else KINDS[1]


def counts() -> list[str]:
  """Return the lines of the reviewers' page that count each of `KINDS`."""
  kinds = [[kind(row, x) for x in INTERVALS] for row in rows()]
  number = lambda name, i: sum(row[i] == name for row in kinds)
  numbers = lambda name: ' | '.join(str(number(name, i)) for i in range(3))
  return [f'| {name} | {numbers(name)} |' for name in KINDS]


def main(path: Path) -> None:
  """Append the rows of the table that `path` lacks."""
  with TABLE.open() as file:
    header, *stored = csv.reader(file)
  known = len(path.read_text().splitlines()) if path.exists() else 0
  with path.open('a', newline='', buffering=1) as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerows([] if known else [header])
    for values in stored[max(known - 1, 0) :]:
      row = dict(zip(header, values, strict=True))
      part, delta = mechanism(row), float(row['delta'])
      answers = [timed(600, our_epsilon, part, delta)]
      epsilon, seconds = map(float, answers[0])
      scaled = epsilon / 1000 if 0 < epsilon < math.inf else 1e-4
      for interval in (1e-4, 1e-5, scaled):
        limit = max(10 * seconds, 5.0)
        answers.append(timed(limit, library_epsilon, part, delta, interval))
      writer.writerow([*values[:8], *itertools.chain(*answers)])


if __name__ == '__main__':
  main(Path(sys.argv[1]))
