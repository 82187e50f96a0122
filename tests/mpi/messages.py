"""Messages, collective operations and communicators of mpi4py; prints one line for each process."""

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
right, left = (rank + 1) % size, (rank - 1) % size
given, got = bytearray(b"%d" % rank * 100), bytearray(200)
for step in range(10):
    request = world.Isend([given, MPI.BYTE], right, 3)
    status = MPI.Status()
    world.Recv([got, MPI.BYTE], left, 3, status)
    request.Wait()
    assert status.Get_count(MPI.BYTE) == len(given)
# Messages of unknown length: mpi4py receives them by a matched probe.
pickled = world.sendrecv({"from": rank}, right, 0, None, left, 0)
total = world.allreduce(rank)
copy = world.Dup()
copy.Barrier()
copy.Free()
part = world.Split(rank % 2, -rank)
root = part.bcast(rank, 0)
part.Free()
sys.stdout.write("rank %d: %s %d %d\n" % (rank, pickled, total, root))
