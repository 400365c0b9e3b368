"""What the bench of elastic sites says about a fault."""

from benchmarks import elastic
from fl_sketch.sites import hub, wire
import numpy as np
import pytest

EVERY = 4  # steps of a round; a step takes 0.25 s


def run_of(folder, hold=0.0):
  """Two sites for 90 rounds of a second; site 1 is out of rounds 22 to 29.

  At its fault, after 20.5 s, round 20 is open. The other site stands still for
  `hold` seconds in round 40.
  """
  (folder / 'hub').mkdir()
  (folder / 'hub' / hub.LOG).touch()
  log, rows = hub.Log(folder / 'hub' / hub.LOG), [[], []]
  for number in range(90):
    sites = [1] if 22 <= number < 30 else [1, 2]
    header = {'run': bytes(16), 'round_index': number}
    log.append([wire.encode_reply((), client_id=i, **header) for i in sites])
    end = number + 1 + hold * (number >= 40)
    times = [float(x) for x in end - np.arange(EVERY)[::-1] / EVERY]
    for site in sites:
      rows[site - 1].append({'round': number + 1, 'times': times})
  fault = elastic.Fault(20.5, 1, 'kill', 3.0)
  return elastic.Run(0.0, 90.0 + hold, rows, [fault], folder)


@pytest.mark.parametrize('hold', [0.0, 7.0])
def test_a_survivor_that_stands_still_is_seen(hold, tmp_path):
  """Catches the fastest of the others, or a first round, in place of all."""
  ((_, still, _),) = elastic.recoveries(run_of(tmp_path, hold))
  assert still == pytest.approx(hold)


def test_a_site_is_back_when_its_payload_counts(tmp_path):
  """Catches a payload from before the fault, and a mere first step."""
  ((_, _, back),) = elastic.recoveries(run_of(tmp_path))
  assert back == pytest.approx(31 - 20.5)  # round 30 ends


def test_a_site_with_a_fault_of_its_own_does_not_count(tmp_path):
  """Catches a killed site whose start counts as the standstill of others."""
  run = run_of(tmp_path, hold=7.0)
  first, second = run.faults[0], elastic.Fault(40.0, 0, 'cut', 2.0)
  found = elastic.recoveries(run._replace(faults=[first, second]))
  wanted = pytest.approx([0.0, np.nan], nan_ok=True)
  assert [still for _, still, _ in found] == wanted


def test_a_replay_has_the_functions_of_the_example():
  """Catches functions whose module is gone."""
  module = elastic.example()
  batch = module.draw(np.random.default_rng(0), np.arange(99))
  assert batch['x'].shape == (module.WINDOWS, module.LENGTH)


def test_only_the_links_of_sites_are_limited():
  """Catches sites that wait for what the others get through their hub."""
  limits = [x for x in elastic.link_commands(2, 10) if x.startswith('tc ')]
  assert len(limits) == 2 * 2  # both ends of each
  assert not [x for x in limits if 'end0' in x or '-n w0' in x]
