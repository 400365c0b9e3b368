from fl_sketch.utils import progress

ROW = {
  'round': 3, 'train_loss': 0.25, 'total_uplink_bytes': 2_000_000,
  'total_downlink_bytes': 500_000,
}  # fmt: skip


def test_the_bar_shows_loss_accuracy_speed_and_bytes(capsys):
  bar = progress.Progress(total=10, done=3, cohort=4, shown=True)
  bar.advance(ROW | {'test_accuracy': 0.5})
  bar.advance(ROW)  # not evaluated: the accuracy stays
  bar.close()
  shown = capsys.readouterr().err
  texts = '5/10', 'loss=0.2500', 'accuracy=0.5000', 'clients/s=', 'MB=2.5'
  assert all(text in shown for text in texts)
