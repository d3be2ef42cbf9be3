# Written by tools/make_stubs.py from ciranda/_collectives/names.py: change it there, then run that.

from ciranda.jax._jax_collectives import barrier as barrier
from ciranda.jax._jax_collectives import collectives, of_tree

allreduce = collectives.allreduce
allreduce_async = collectives.allreduce_async
grouped_allreduce = of_tree(collectives.grouped_allreduce)
grouped_allreduce_async = collectives.grouped_allreduce_async
allgather = collectives.allgather
allgather_async = collectives.allgather_async
grouped_allgather = of_tree(collectives.grouped_allgather)
grouped_allgather_async = collectives.grouped_allgather_async
broadcast = collectives.broadcast
broadcast_async = collectives.broadcast_async
grouped_broadcast = of_tree(collectives.grouped_broadcast)
grouped_broadcast_async = collectives.grouped_broadcast_async
reducescatter = collectives.reducescatter
reducescatter_async = collectives.reducescatter_async
grouped_reducescatter = of_tree(collectives.grouped_reducescatter)
grouped_reducescatter_async = collectives.grouped_reducescatter_async
alltoall = collectives.alltoall
alltoall_async = collectives.alltoall_async
grouped_alltoall = of_tree(collectives.grouped_alltoall)
grouped_alltoall_async = collectives.grouped_alltoall_async
reduce = collectives.reduce
reduce_async = collectives.reduce_async
grouped_reduce = collectives.grouped_reduce
grouped_reduce_async = collectives.grouped_reduce_async
gather = collectives.gather
gather_async = collectives.gather_async
grouped_gather = collectives.grouped_gather
grouped_gather_async = collectives.grouped_gather_async
scatter = collectives.scatter
scatter_async = collectives.scatter_async
grouped_scatter = collectives.grouped_scatter
grouped_scatter_async = collectives.grouped_scatter_async
scan = collectives.scan
scan_async = collectives.scan_async
grouped_scan = collectives.grouped_scan
grouped_scan_async = collectives.grouped_scan_async
