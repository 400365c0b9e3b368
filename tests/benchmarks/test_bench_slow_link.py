"""The bench over slow links reads, computes and lays what it says."""

import math
import sys

from benchmarks import slow_link
import pytest

RATES = 10.0, 100.0, 1000.0  # Mbit/s


def row(name, sent, compute, rates=RATES):
  """A contestant on links that are exactly as fast as they are called."""
  seconds = {rate: [compute + 8e-6 * sent / rate] * 3 for rate in rates}
  return slow_link.Row(name, {rate: [sent] for rate in rates}, seconds)


@pytest.mark.parametrize('rates', [RATES, (math.inf,)])
def test_computing_and_break_even_are_those_of_the_law(rates):
  """Catches bits taken for bytes, or a fit that counts the link twice."""
  dense, packed = row('JAX', 4e6, 0.1, rates), row('packed', 4e4, 0.3, rates)
  assert packed.compute == pytest.approx(0.3)
  even = slow_link.break_even(packed, dense)
  assert even == pytest.approx(8 * 3.96e6 / 0.2 / 1e6)
  assert slow_link.break_even(row('', 4e4, 0.1, rates), dense) == math.inf
  assert slow_link.break_even(row('', 5e6, 0.2, rates), dense) == 0


def test_every_end_of_a_link_has_its_bucket():
  """Catches a limit one way only, and a bucket through which payloads jump."""
  lines = slow_link.rate_commands(2, 10)
  assert lines[0] == (
    'tc qdisc replace dev end0 root tbf rate 10mbit burst 3000b latency 2000ms'
  )
  assert lines[3].startswith('tc -n w1 qdisc replace dev eth0 root tbf rate 10')
  assert 'burst 125000b' in slow_link.rate_commands(1, 1000)[0]
  links = slow_link.link_commands(4)
  assert 'ip -n w3 addr add 10.77.0.4/24 dev eth0' in links
  assert links[0] == 'mount -t tmpfs none /run'  # not the machine's own


@pytest.mark.long
def test_one_bit_tables_really_are_fewer_bytes():
  """Catches tables that travel as float32, and steps that do nothing."""
  names, python = ['JAX', 'one-bit tables both ways'], {'jax': sys.executable}
  (result,) = slow_link.measure([2], [math.inf], 1, python, names)
  (dense, packed), d = result.rows, 809_856
  assert dense.sent == pytest.approx(4 * d, rel=0.1)
  assert packed.sent == pytest.approx(4 * d / 100, rel=0.1, abs=4000)
