"""Rounds over NVFlare: simulated sites, and a federation with certificates."""

import importlib.util
import shutil

from nvflare_kits import Kits, until
import pytest

pytestmark = [
  pytest.mark.long,
  pytest.mark.skipif(
    importlib.util.find_spec('nvflare') is None,
    reason="needs nvflare: pip install 'fl_sketch[nvflare]'",
  ),
]


@pytest.fixture
def kits(tmp_path):
  made = []

  def kits(name='kits', **options):
    made.append(Kits(tmp_path / name, **options))
    return made[-1]

  yield kits
  for each in made:
    each.close()


def test_a_client_of_another_authority_is_refused(kits):
  """Catches a server that takes anybody who knows its address."""
  ours, theirs = kits('ours'), kits('theirs')
  ours.start('localhost')
  until(lambda: ours.connects())
  forged = theirs.kit('site-2') / 'startup'
  # Theirs trusts our server, and has a certificate of its own authority.
  root = ours.kit('site-2') / 'startup'
  for name in ('rootCA.pem', 'fed_client.json'):
    shutil.copy(root / name, forged / name)
  theirs.start('site-2')
  ours.start('site-1')
  until(lambda: 'site-1' in ours.connected())
  until(lambda: 'CERTIFICATE' in theirs.log('site-2').upper())
  assert ours.connected() == {'site-1'}
