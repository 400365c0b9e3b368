"""Run the Flower job: flower_job.py FOLDER ROUNDS SAMPLES.

Starts a SuperLink, two SuperNodes and the app. JOB_COMPRESSION has its options
of compression in JSON; {} is none. Prints the bytes between nodes and link,
both ways, which a proxy between them counts.
"""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

from fl_sketch.sites import flower

LINK, COUNTED = ('127.0.0.1', 8000), ('127.0.0.1', 8001)
CONFIG = '[superlink.here]\naddress = "127.0.0.1:8000"\ninsecure = true\n'


def relay(source, target, sizes):
  """Copy what arrives, and list its sizes, until either side has ended."""
  with contextlib.suppress(OSError):
    while data := source.recv(2**16):
      sizes.append(len(data))
      target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def proxy(sizes):
  """Connect whoever comes with the SuperLink."""
  with socket.create_server(COUNTED) as listener:
    while True:
      node, _ = listener.accept()
      link = socket.create_connection(LINK)
      for pair in (node, link), (link, node):
        threading.Thread(target=relay, args=(*pair, sizes), daemon=True).start()


def wait_for(address):
  """Wait until somebody listens."""
  while True:
    try:
      return socket.create_connection(address).close()
    except ConnectionRefusedError:
      time.sleep(0.5)


def main(folder, rounds, samples):
  """Run until the app ends."""
  home, sizes = pathlib.Path(folder, 'flower'), []
  home.mkdir(exist_ok=True)
  (home / 'config.toml').write_text(CONFIG)
  os.environ |= flower.ENVIRONMENT | {'FLWR_HOME': str(home)}
  start = lambda *command: subprocess.Popen(command, stdout=sys.stderr)
  options = '--insecure', '--disable-runtime-dependency-installation'
  started = [start('flower-superlink', *options)]
  try:
    wait_for(LINK)
    threading.Thread(target=proxy, args=(sizes,), daemon=True).start()
    node = 'flower-supernode', '--insecure', '--superlink', '127.0.0.1:8001'
    for number in range(2):
      at = f'--port=801{number}', f'--node-config=partition={number}'
      started.append(start(*node, *at))
    values = f'rounds={rounds} samples={samples} folder="{folder}"'
    app = pathlib.Path(__file__).with_name('flower_app')
    flower.start(app, 'here', '--run-config', values)
  finally:
    for process in started:
      process.terminate()
      process.wait()  # or it connects with the next job
  print(sum(sizes))


main(*sys.argv[1:])
