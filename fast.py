import time, sys, os
import ciranda as hvd, numpy as np
hvd.init()
x = np.ones(1, np.float32); out = np.empty_like(x)
n = 0; began = time.perf_counter(); cpu = time.process_time()
from ciranda import _core
end = time.monotonic() + 25
while time.monotonic() < end:
    for _ in range(1000): hvd.barrier()
    n += 1000
print(f"{n / (time.perf_counter() - began):.0f} calls/s, {n/(time.process_time()-cpu):.0f} a CPU second")
