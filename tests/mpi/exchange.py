"""The messages of exchange.c, with mpi4py: sizes show which events belong together. MPI is told that several threads may receive."""

import sys

from mpi4py import MPI

rounds = int(sys.argv[1])
world = MPI.COMM_WORLD
rank, size = world.rank, world.size
out, into, other = bytearray(4096), bytearray(4096), bytearray(4096)

ring = world.Dup()
right, left = (rank + 1) % size, (rank - 1) % size
for step in range(1, rounds + 1):
    requests = [ring.Irecv(into, left, 1), ring.Irecv(other, right, 2)]
    requests.append(ring.Isend([out, step, MPI.BYTE], right, 1))
    ring.Send([out, step, MPI.BYTE], left, 2)
    MPI.Request.Waitall(requests)

if rank == 0:
    jobs, ended = [0] * size, 0
    while ended < size - 1:
        status = MPI.Status()
        world.Recv(into, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker = status.source
        jobs[worker] += 1
        is_end = jobs[worker] > rounds
        world.Send([out, jobs[worker], MPI.BYTE], worker, 7 if is_end else 6)
        ended += is_end
else:
    status, result = MPI.Status(), 0
    while status.tag != 7:
        result += 1
        world.Send([out, result, MPI.BYTE], 0, 5)
        world.Recv(into, 0, MPI.ANY_TAG, status)

part = world.Split(rank % 2, rank)
for step in range(1, rounds + 1):
    part.Allreduce([out, step, MPI.BYTE], [into, step, MPI.BYTE], MPI.BOR)
    if step % 4 == 0:
        part.Barrier()
sys.stdout.write("rank %d: done\n" % rank)
