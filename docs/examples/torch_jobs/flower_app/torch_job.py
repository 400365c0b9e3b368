"""The Flower job, in the shape of Flower's quickstart-pytorch."""

import json
import os

import cifar
from fl_sketch.sites.flower_updates import CompressedGrid, compressed
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
import torch

# Options of every process; {} is no compression.
COMPRESSION = json.loads(os.environ['JOB_COMPRESSION'])
server = ServerApp()
client = ClientApp(mods=[compressed(**COMPRESSION)] if COMPRESSION else [])


@client.train()
def train(message, context):
  """Train the model of a message on this client's part of the data."""
  number, config = context.node_config['partition'], context.run_config
  net = cifar.Net()
  net.load_state_dict(message.content['arrays'].to_torch_state_dict())
  draw = 2 * message.content['config']['server-round'] + number
  data = cifar.load('train', slice(number, None, 2))
  cifar.train(net, data, config['samples'], draw)
  arrays = ArrayRecord(net.state_dict())
  metrics = MetricRecord({'num-examples': config['samples']})
  content = RecordDict({'arrays': arrays, 'metrics': metrics})
  return Message(content=content, reply_to=message)


@server.main()
def main(grid, context):
  """Average models over the rounds."""
  config = context.run_config
  if COMPRESSION:
    report = f'{config["folder"]}/bytes.jsonl'
    grid = CompressedGrid(grid, **COMPRESSION, report=report)
  strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=2)
  result = strategy.start(
    grid=grid, initial_arrays=ArrayRecord(cifar.Net().state_dict()),
    num_rounds=config['rounds'],
  )  # fmt: skip
  torch.save(
    result.arrays.to_torch_state_dict(), f'{config["folder"]}/model.pt'
  )
