"""What is claimed of attacks: local steps, real images, the program."""

from launch import configs
from papers.song.attacks import campaign, settings, victims
from papers.song.attacks.settings import Setting
import pytest
from runs import DATA, command

pytestmark = pytest.mark.long


def test_an_experiment_pools_rounds_of_local_steps():
  fields = {
    'examples': 12, 'sketches': ['gaussian'], 'pooled_size': 12, 'pooled': [3],
    'local_steps': 3, 'client_lr': 0.3, 'restarts': 3, 'start_scale': 0.3,
    'rounds': 1, 'cohort': 1000,
  }  # fmt: skip
  c = settings.AttackConfig.from_mapping(fields)
  victim, pooled = victims.load(c), Setting(1, 'gaussian', 12, 3)
  assert pooled in settings.grid(c)
  attack = lambda setting: campaign.attack(c, victim, setting)[0]
  assert attack(pooled)['success'] >= 0.8
  private = pooled._replace(size=48, defence='epsilon', strength=8.0)
  assert attack(private)['success'] == 0
  bounded = private._replace(defence='clip', strength=c.clip_norm)
  assert attack(bounded)['success'] >= 0.8


@pytest.mark.parametrize(
  ('name', 'size'), [('mnist', 13_426), ('cifar10', 15_826)]
)
def test_images_come_out_of_gradients_and_not_of_private_sketches(name, size):
  if not (DATA / name).exists():
    pytest.skip(f'needs {name} in {DATA}')
  module = configs.load(f'{name}_attack')
  fields = module.get_config().to_dict() | {'examples': 1, 'batch_sizes': [1]}
  c = settings.AttackConfig.from_mapping(fields)
  victim = victims.load(c, str(DATA))
  attack = lambda *setting: campaign.attack(c, victim, Setting(1, *setting))[0]

  whole = attack()
  assert whole['psnr'] >= 25
  assert whole['ssim'] >= 0.8
  # A quarter and a twelfth of a number for each unknown: what is missing comes
  # from the total variation, so that less than m numbers do not hide images.
  few = attack('block_cyclic', size // 64)
  assert few['per_unknown'] < 0.3
  assert few['psnr'] <= whole['psnr'] - 15
  assert few['ssim'] >= 0.3
  private = attack('block_cyclic', size // 4, 1, 'epsilon', 8.0)
  assert private['psnr'] < 12
  assert private['ssim'] < 0.1


def test_the_program_runs_goes_on_and_refuses(tmp_path):
  fields = {
    'examples': 2, 'restarts': 1, 'steps': 20, 'sizes': (24,), 'pooled': (2,),
    'noises': (0.1,), 'epsilons': (), 'defences': ('top_k',), 'k': 5,
  }  # fmt: skip
  flags = ['--config=tanh_attack:quick', f'--workdir={tmp_path}']
  flags += [f'--config.{name}={value}' for name, value in fields.items()]
  play = lambda *more: command('attack', *flags, *more)
  first, again = play(), play()
  for done in (first, again):
    assert done.returncode == 0
    assert '| gaussian, b = 48, noise of 0.1 its length | 1 |' in done.stdout
    assert '| gaussian, b = 48, top 5 | 1 |' in done.stdout
    assert f'Table and pictures are in {tmp_path}' in done.stdout
  assert first.stdout == again.stdout
  assert (tmp_path / 'success.png').exists()
  for option, message in {
    '--config.steps=21': 'steps: 20 then, 21 now',
    '--config.optimizer=sgd': "Expected optimizer='sgd' in",
    '--config.step=3': 'step',
  }.items():
    refused = play(option)
    assert refused.returncode != 0
    assert message in refused.stderr
    assert 'Traceback' not in refused.stderr
