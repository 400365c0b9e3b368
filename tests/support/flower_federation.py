"""A SuperLink and SuperNodes on loopback, with TLS and keys made here."""

import datetime
import ipaddress
import json
import os
import pathlib
import subprocess
import sys

from counting_proxy import Proxy
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fl_sketch.sites import flower
import harness
from nvflare_kits import kill, until

BIN = pathlib.Path(sys.executable).parent
PEM = serialization.Encoding.PEM


def _write(path, key, form):
  path.write_bytes(key.private_bytes(PEM, form, serialization.NoEncryption()))


def certificates(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
  """Writes (CA, certificate, key) for 127.0.0.1."""
  folder.mkdir()
  now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
  named = lambda x: x509.Name([x509.NameAttribute(x509.OID_COMMON_NAME, x)])
  ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
  may_sign = x509.KeyUsage(*(5 * [False]), True, *(3 * [False]))
  address = x509.IPAddress(ipaddress.ip_address('127.0.0.1'))
  issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key
  for kind, own, extensions in (
    ('ca', ca_key, (x509.BasicConstraints(True, None), may_sign)),
    ('server', key, (x509.SubjectAlternativeName([address]),)),
  ):
    built = x509.CertificateBuilder(
      named('ca'), named(kind), own.public_key(),
      x509.random_serial_number(), now - day, now + day,
    ).add_extension(issuer(ca_key.public_key()), False)  # fmt: skip
    subject = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
    built = built.add_extension(subject, False)
    for extension in extensions:
      built = built.add_extension(extension, True)
    pem = built.sign(ca_key, hashes.SHA256()).public_bytes(PEM)
    (folder / f'{kind}.pem').write_bytes(pem)
  _write(folder / 'server.key', key, serialization.PrivateFormat.PKCS8)
  return tuple(folder / x for x in ('ca.pem', 'server.pem', 'server.key'))


class Federation:
  """A SuperLink and its SuperNodes; `processes` has them by name."""

  def __init__(self, folder: pathlib.Path):
    self.folder, self.port = folder, harness.free_port()
    self.processes: dict[str, subprocess.Popen] = {}
    self.proxies: dict[str, Proxy] = {}
    self.ca, self.certificate, self.key = certificates(folder / 'tls')
    self.home = folder / 'flower_home'
    self.home.mkdir()
    self.env = {
      **os.environ, **flower.ENVIRONMENT, 'FLWR_HOME': str(self.home),
      'PYTHONPATH': str(harness.ROOT),
      'PATH': f'{BIN}:{os.environ["PATH"]}',
    }  # fmt: skip
    (self.home / 'config.toml').write_text(
      f'[superlink]\ndefault = "test"\n[superlink.test]\n'
      f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{self.ca}"\n'
    )

  def __enter__(self):
    return self

  def __exit__(self, *_):
    for name in list(self.processes):
      self.kill(name)
    for proxy in self.proxies.values():
      proxy.__exit__()

  def popen(self, name: str, *command: str):
    """Starts a process, whose output is in a log."""
    with open(self.folder / f'{name}.log', 'ab') as log:
      self.processes[name] = subprocess.Popen(
        [BIN / command[0], *command[1:]], stdout=log, stderr=log, env=self.env
      )

  def family(self, name: str) -> dict[int, str]:
    """A process and those that it has started, {pid: command}, as they are."""
    ps = 'ps', '-ww', '-e', '-o', 'pid=,ppid=,args='
    out = subprocess.run(ps, check=True, capture_output=True, text=True).stdout
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    found, size = {self.processes[name].pid: ''}, 0
    while len(found) > size:
      size = len(found)
      found |= {int(pid): x for pid, up, x in lines if int(up) in found}
    return found

  def kill(self, name: str, part: str = '', new: bool = False):
    """SIGKILL to a process and all that it has started, or to some of these."""
    ours = lambda: {p for p, x in self.family(name).items() if part in x}
    before = ours() if new else set()
    until(lambda: ours() - before)
    pids = ours() - before
    kill(*pids)
    if not part:
      self.processes.pop(name).wait()

  def superlink(self):
    self.popen(
      'superlink', 'flower-superlink', '--host', '127.0.0.1', '--port',
      f'{self.port}', '--ssl-ca-certfile', f'{self.ca}', '--ssl-certfile',
      f'{self.certificate}', '--ssl-keyfile', f'{self.key}',
      '--database', f'{self.folder}/superlink.sqlite',
      '--enable-supernode-auth', '--disable-runtime-dependency-installation',
    )  # fmt: skip
    until(lambda: harness.listens(self.port))

  def flwr(self, *command: str) -> str:
    done = subprocess.run(
      [BIN / 'flwr', *command], env=self.env, capture_output=True, text=True
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout

  def register(self, name: str):
    """Makes a node's key pair, whose public key the SuperLink gets."""
    private = ec.generate_private_key(ec.SECP384R1())
    path, ssh = self.folder / name, serialization.Encoding.OpenSSH
    public = serialization.PublicFormat.OpenSSH
    key = private.public_key().public_bytes(ssh, public)
    path.with_suffix('.pub').write_bytes(key)
    _write(path, private, serialization.PrivateFormat.OpenSSH)
    self.flwr('supernode', 'register', f'{self.folder / name}.pub', 'test')

  def supernode(self, name: str, *site: str):
    """Starts the worker of a site, with its arguments, and its SuperNode."""
    proxy = self.proxies.setdefault(name, None) or Proxy(self.port)
    self.proxies[name] = proxy
    self.popen(
      name, 'python', '-m', 'launch', 'site', *site, '--', 'flower-supernode',
      '--superlink', f'127.0.0.1:{proxy.port}', '--root-certificates',
      f'{self.ca}', '--port', f'{harness.free_port()}',
      '--auth-supernode-private-key', f'{self.folder / name}',
    )  # fmt: skip

  def log(self, name: str) -> str:
    return (self.folder / f'{name}.log').read_text()

  def online(self) -> int:
    nodes = json.loads(self.flwr('supernode', 'list', '--format', 'json'))
    return sum(x['status'] == 'online' for x in nodes['nodes'])
