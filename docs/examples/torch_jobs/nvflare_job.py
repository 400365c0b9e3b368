"""Run the NVFlare job: nvflare_job.py FOLDER ROUNDS SAMPLES.

JOB_COMPRESSION has options of `compress` in JSON; {} is no compression. Prints
the bytes that the loopback has sent.
"""

import json
import os
import pathlib
import sys

import cifar
from fl_sketch.sites.nvflare_updates import compress
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv

folder, rounds, samples = sys.argv[1:]
recipe = FedAvgRecipe(
  name='job', model=cifar.Net(), min_clients=2, num_rounds=int(rounds),
  train_script=str(pathlib.Path(__file__).with_name('nvflare_client.py')),
  train_args=f'--samples={samples}',
)  # fmt: skip
if options := json.loads(os.environ['JOB_COMPRESSION']):
  compress(recipe, **options, report=f'{folder}/bytes.jsonl')
recipe.execute(SimEnv(num_clients=2, workspace_root=folder))
counters = pathlib.Path('/proc/net/dev').read_text().partition('lo:')[2]
print(counters.split()[0])
