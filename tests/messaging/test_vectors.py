import json, time
import pytest, wire_vectors as w
@pytest.mark.parametrize(('file','name'), [(f,n) for f,(names,_) in w.FILES.items() for n in names])
def test_x(file,name):
  t=time.process_time()
  w.FILES[file][1](name)
  print('TIME', file, name, round(time.process_time()-t,2))
