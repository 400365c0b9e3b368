"""A hosted site that has not joined a hub: what it makes of single rounds."""

import contextlib
from typing import Any

from fl_sketch.sites import hosted, hub, mailbox, outer_rounds, wire
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.distributed import test_meshes as outer_steps
from tests.sites.test_hosted import SIGN, flat, local_step, site_of

NOWHERE = 'tcp://127.0.0.1:1'


@contextlib.contextmanager
def alone(compressor=SIGN, **options):
  """A site that has not joined, and a round with a payload of its number."""
  with site_of(NOWHERE, 0, compressor, **options) as site:
    anchor = site.shared.params
    site.memory = ones = jax.tree.map(jnp.ones_like, site.memory)
    place = local_step(anchor, 0)
    payload, _ = site.rounds.encode(0, 0, anchor, place, ones)
    yield site, place, round_of(payload)


def round_of(payload):
  message = wire.encode_reply(
    payload, run=bytes(16), round_index=0, client_id=0
  )
  return mailbox.Round(0, [message])


def test_a_site_that_catches_up_begins_at_the_anchor():
  """Catches memory and movement that a payload before a restart had."""
  with alone(blend=0.5) as (site, place, closed):
    site._had = hosted._less(place, site.shared.params)
    place = site._land(place, closed)
    assert not any(np.any(x) for x in jax.tree.leaves(site.memory))
    np.testing.assert_allclose(flat(place), flat(site.shared.params), 1e-6)


@pytest.mark.parametrize('waits', [False, True])
def test_steps_since_a_restart_are_not_lost(waits):
  """Catches steps that an earlier payload, of this round, takes along."""
  with alone() as (site, place, closed):
    site._had = hosted._less(place, site.shared.params)
    site._pending = site.memory if waits else None
    again = local_step(place, 1)
    since = flat(again) - flat(place)
    place = site._land(again, closed)
    away = flat(place) - flat(site.shared.params)
    np.testing.assert_allclose(away, since, atol=1e-6)
    assert site._had is None


def test_what_is_not_finite_is_not_saved(tmp_path):
  """Catches a site that fails again at every start."""
  with site_of(NOWHERE, 0, folder=tmp_path) as site:
    state = lambda x: (site.shared, site.memory, site.shared.params, x)
    site._save(state(jnp.ones(2)))
    site.round = 7
    site._save(state(jnp.full(2, jnp.nan)))
    assert site._saved(state(jnp.ones(2)))[0] == 0


@pytest.mark.parametrize('wrong', [3, jax.random.key(0)])
def test_only_arrays_are_kept(wrong):
  """Catches a state that cannot be saved, after hours."""
  with site_of(NOWHERE, 0) as site:
    with pytest.raises(ValueError, match='kept must be of arrays'):
      site.begin({'step': wrong})


def test_a_payload_that_waits_is_not_the_one_of_an_earlier_start():
  """Catches a new payload whose memory counts though the old one was in."""
  with alone() as (site, place, closed):
    before, moved = flat(site.shared.params), flat(place)
    site._pending = site.memory
    place = site._land(place, closed)
    assert not any(np.any(x) for x in jax.tree.leaves(site.memory))
    away = flat(place) - flat(site.shared.params)
    np.testing.assert_allclose(away, moved - before, atol=1e-6)
  with alone() as (site, place, closed):
    site._pending = pending = jax.tree.map(lambda x: 2 * x, site.memory)
    site._land(place, closed._replace(has_own=True))
    assert site.memory is pending


def test_only_its_own_payload_that_is_not_finite_ends_a_site():
  """Catches a site that can never start again after it has diverged."""
  with alone() as (site, place, closed):
    nan = jax.tree.map(lambda x: x * np.nan, place)
    payload, _ = site.rounds.encode(0, 0, nan, nan, site.memory)
    closed = round_of(payload)
    site._land(place, closed)
    assert site.round == 1
    site.round = 0
    with pytest.raises(ValueError, match='not finite'):
      site._land(place, closed._replace(has_own=True))


def test_a_site_knows_its_own_payload_by_its_bytes():
  """Catches a payload of an earlier start that is taken for the last one."""
  with alone() as (site, _, _):
    mail: Any = site._mail
    own, other = b'of this start', b'of an earlier one'
    mail._payload = 0, own
    for number, message in enumerate((own, hub.mark(own), other)):
      mail._hear(hub.ROUND, hub.NUMBER.pack(number), message)
    assert [mail.take(0).has_own for _ in range(3)] == [True, True, False]


def test_payloads_of_another_round_are_no_round():
  """Catches payloads that are decoded with the keys of another round."""
  with alone() as (site, _, closed):
    with pytest.raises(wire.PayloadError, match='Round 1'):
      site.rounds.payloads(1, closed.messages)


def test_a_run_has_one_outer_optimizer():
  """Catches sites with other rates in a run, and processes that differ."""

  def made(rate):
    identity = jax.custom_jvp(lambda x: x)  # has an address in the program
    identity.defjvp(lambda x, tangents: (x[0], tangents[0]))
    clip = optax.stateless(lambda x, _: jax.tree.map(identity, x))
    tx = optax.chain(clip, optax.sgd(rate))
    with site_of(NOWHERE, 0, outer=tx) as site:
      return site._run

  assert made(0.7) == made(0.7) != made(0.1)


@pytest.mark.parametrize('name', ['ef21(codec="sign")', 'power_sgd(rank=1)'])
def test_an_algorithm_is_no_compressor_of_sites(name):
  """Catches estimates of sites that are never repaired when one is away."""
  with pytest.raises(ValueError, match='not supported between sites'):
    outer_rounds.OuterRounds(outer_steps.PARAMS, name, None, 0)


def test_a_step_may_donate_the_place_where_a_site_begins():
  """Catches an anchor whose buffers the loop deletes."""
  with site_of(NOWHERE, 0) as site:
    site._mail.join = lambda *_: None
    site._mail.open_round = 0
    place, _ = site.begin()
    jax.tree.map(lambda x: x.delete(), place)
    assert np.isfinite(flat(site.shared.params)).all()


def test_what_is_read_lies_where_it_was():
  """Catches a restart that puts all of a mesh's arrays on one device."""
  mesh = jax.make_mesh((2,), ('data',))
  split = jax.NamedSharding(mesh, jax.P('data'))
  like = {'x': jax.device_put(jnp.arange(4.0), split), 'step': jnp.int32(3)}
  raw = wire.encode_reply(like, run=bytes(16), round_index=0, client_id=0)
  found = hosted._read(wire.decode_reply(raw), like)
  assert found['x'].sharding == split
  assert jax.jit(lambda x: x['x'] + x['step'])(found).sharding == split
  np.testing.assert_array_equal(found['x'], like['x'])
