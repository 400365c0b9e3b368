"""A provisioned federation of NVFlare over loopback, with certificates."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import harness

ADMIN = 'admin@example.org'
BUILDERS = {
  'workspace.WorkspaceBuilder': {'template_file': ['master_template.yml']},
  'static_file.StaticFileBuilder': {'config_folder': 'config'},
  'cert.CertBuilder': {},
  'signature.SignatureBuilder': {},
}


def until(found, seconds=120.0):
  """Waits for what other processes do, and returns it."""
  end = time.monotonic() + seconds
  while not (value := found()):
    if time.monotonic() > end:
      raise AssertionError('it did not come')
    time.sleep(0.2)
  return value


class Kits:
  """Kits of a server on a free port and of sites, and their processes."""

  def __init__(self, folder: pathlib.Path, sites=('site-1', 'site-2')):
    self.port = harness.free_port()
    self.folder, self.running = folder, {}
    people = [{'name': name, 'type': 'client', 'org': 'o'} for name in sites]
    server = {'name': 'localhost', 'type': 'server', 'org': 'o'}
    admin = {'name': ADMIN, 'type': 'admin', 'org': 'o'}
    admin['role'] = 'project_admin'
    people += [server | {'fed_learn_port': self.port}, admin]
    builders = [
      {'path': f'nvflare.lighter.impl.{path}', 'args': args}
      for path, args in BUILDERS.items()
    ]
    project = {
      'api_version': 3, 'name': 'p', 'description': 'p', 'participants': people,
      'builders': builders,
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / 'project.yml').write_text(json.dumps(project))  # which YAML is
    self.env = os.environ | {
      'HOME': str(folder),
      'PATH': os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH'],
      'PYTHONPATH': str(harness.ROOT),
    }
    command = ['nvflare', 'provision', '-p', 'project.yml', '-w', 'kits']
    subprocess.run(
      command, cwd=folder, env=self.env, check=True, capture_output=True
    )
    local = self.kit('localhost') / 'local'
    text = (local / 'resources.json.default').read_text()
    text = text.replace('/tmp/nvflare', str(folder / 'store'))
    (local / 'resources.json').write_text(text)

  def kit(self, name) -> pathlib.Path:
    return self.folder / 'kits/p/prod_00' / name

  def start(self, name, before=(), env=None):
    """Starts the server or a site, after words of another command."""
    command = 'bash', self.kit(name) / 'startup/sub_start.sh', '--once'
    with open(self.folder / f'{name}.log', 'ab') as log:
      self.running[name] = subprocess.Popen(
        [*before, *command], env=self.env | (env or {}), cwd=harness.ROOT,
        stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
      )  # fmt: skip

  def log(self, name) -> str:
    return (self.folder / f'{name}.log').read_text(errors='replace')

  def kill(self, name):
    """Ends the server or a site as a loss of power does."""
    process = self.running.pop(name)
    kill(process.pid, *processes(self.kit(name)))
    process.wait()

  def close(self):
    for name in list(self.running):
      self.kill(name)


def kill(*pids):
  for pid in pids:
    with contextlib.suppress(ProcessLookupError):
      os.kill(pid, signal.SIGKILL)


def processes(*words) -> list[int]:
  """Processes with all words in their command."""
  found = []
  for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
    with contextlib.suppress(OSError):
      command = path.read_text().replace('\0', ' ')
      if all(str(word) in command for word in words):
        found.append(int(path.parent.name))
  return found
