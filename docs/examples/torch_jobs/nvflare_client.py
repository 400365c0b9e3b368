"""A client of the NVFlare job, in the shape of NVFlare's hello-pt."""

import argparse

import cifar
import nvflare.client as flare

parser = argparse.ArgumentParser()
parser.add_argument('--samples', type=int)
samples = parser.parse_args().samples
flare.init()
number = int(flare.get_site_name().rpartition('-')[2]) - 1
data, net = cifar.load('train', slice(number, None, 2)), cifar.Net()
while flare.is_running():
  received = flare.receive()
  net.load_state_dict(received.params)
  cifar.train(net, data, samples, 2 * received.current_round + number)
  weights = {k: x.cpu() for k, x in net.state_dict().items()}
  meta = {'NUM_STEPS_CURRENT_ROUND': samples // cifar.BATCH}
  flare.send(flare.FLModel(params=weights, meta=meta))
