/* Every collective operation, blocking, non-blocking, persistent if available, and between two groups. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 16 };

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm comm = MPI_COMM_WORLD, copy;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int one[MOST], all[MOST], more[MOST], counts[MOST], places[MOST], zeros[MOST];
    MPI_Datatype types[MOST];
    for (int i = 0; i < size; i++) {
        one[i] = rank * 100 + i;
        counts[i] = 1;
        places[i] = i;
        zeros[i] = 4 * i;
        types[i] = MPI_INT;
    }
    long total = 0;
    for (int step = 0; step < 20; step++) {
        int root = step % size, value = rank + step;
        MPI_Request request;
        MPI_Barrier(comm);
        MPI_Bcast(&value, 1, MPI_INT, root, comm);
        total += value;
        MPI_Gather(&rank, 1, MPI_INT, all, 1, MPI_INT, root, comm);
        MPI_Gatherv(&rank, 1, MPI_INT, all, counts, places, MPI_INT, root, comm);
        MPI_Scatter(one, 1, MPI_INT, &value, 1, MPI_INT, root, comm);
        MPI_Scatterv(one, counts, places, MPI_INT, &value, 1, MPI_INT, root, comm);
        total += value;
        MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, comm);
        all[rank] = value;
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INT, comm);
        MPI_Allgatherv(&value, 1, MPI_INT, all, counts, places, MPI_INT, comm);
        MPI_Alltoall(one, 1, MPI_INT, all, 1, MPI_INT, comm);
        MPI_Alltoallv(one, counts, places, MPI_INT, all, counts, places, MPI_INT, comm);
        MPI_Alltoallw(one, counts, zeros, types, all, counts, zeros, types, comm);
        total += all[(rank + 1) % size];
        MPI_Reduce(one, more, size, MPI_INT, MPI_SUM, root, comm);
        if (rank == root) MPI_Reduce(MPI_IN_PLACE, more, size, MPI_INT, MPI_SUM, root, comm);
        else MPI_Reduce(one, NULL, size, MPI_INT, MPI_SUM, root, comm);
        MPI_Allreduce(one, more, size, MPI_INT, MPI_MAX, comm);
        MPI_Reduce_scatter(one, &value, counts, MPI_INT, MPI_SUM, comm);
        MPI_Reduce_scatter_block(one, &value, 1, MPI_INT, MPI_SUM, comm);
        total += value + more[0];
        MPI_Scan(&rank, &value, 1, MPI_INT, MPI_SUM, comm);
        MPI_Exscan(&rank, &value, 1, MPI_INT, MPI_SUM, comm);
        total += rank ? value : 0;
        MPI_Ibarrier(comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request two[2];
        MPI_Iallreduce(one, more, size, MPI_INT, MPI_MIN, comm, &two[0]);
        MPI_Ibcast(&value, 1, MPI_INT, root, comm, &two[1]);
        MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
        total += more[0] + value;
        MPI_Igather(&rank, 1, MPI_INT, all, 1, MPI_INT, root, comm, &request);
        int flag = 0;
        while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Request request;
    MPI_Comm_idup(comm, &copy, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(copy);
    /* Neighbours on a ring, and on a graph. */
    MPI_Comm cart, graph, half, inter, merged;
    int periodic = 1, from = (rank + 1) % size, to = (rank + size - 1) % size;
    MPI_Cart_create(copy, 1, &size, &periodic, 0, &cart);
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, cart);
    total += all[0] + 2 * all[1];
    MPI_Neighbor_alltoall(one, 1, MPI_INT, all, 1, MPI_INT, cart);
    MPI_Dist_graph_create_adjacent(comm, 1, &from, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &graph);
    MPI_Ineighbor_allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, graph, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    total += all[0];
    MPI_Comm_split(comm, rank % 2, rank, &half);
    if (size > 1) {
        MPI_Intercomm_create(half, 0, comm, rank % 2 ? 0 : 1, 12, &inter);
        int value = rank;
        MPI_Barrier(inter);
        MPI_Allreduce(&rank, &value, 1, MPI_INT, MPI_SUM, inter);
        total += value;
        int place, others;
        MPI_Comm_rank(half, &place);
        MPI_Comm_remote_size(inter, &others);
        MPI_Bcast(&value, 1, MPI_INT, rank % 2 ? 0 : place == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
        if (place < others) MPI_Sendrecv(&rank, 1, MPI_INT, place, 3, &value, 1, MPI_INT, place, 3, inter,
                                         MPI_STATUS_IGNORE);
        total += value;
        MPI_Intercomm_merge(inter, rank % 2, &merged);
        MPI_Allreduce(&rank, &value, 1, MPI_INT, MPI_SUM, merged);
        total += value;
        MPI_Comm_free(&merged);
        MPI_Comm_free(&inter);
    }
    MPI_Group world, some;
    int first[] = {0, 1};
    MPI_Comm_group(comm, &world);
    MPI_Group_incl(world, size < 2 ? size : 2, first, &some);
    if (rank < 2) {
        MPI_Comm pair;
        MPI_Comm_create_group(comm, some, 5, &pair);
        MPI_Barrier(pair);
        MPI_Comm_free(&pair);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&world);
#if MPI_VERSION >= 4
    int sum = 0;
    MPI_Allreduce_init(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    for (int step = 0; step < 3; step++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        total += sum;
    }
    MPI_Request_free(&request);
#endif
    MPI_Barrier(MPI_COMM_SELF);
    printf("rank %d: %ld\n", rank, total);
    MPI_Comm_free(&half);
    MPI_Comm_free(&graph);
    MPI_Comm_free(&cart);
    MPI_Comm_free(&copy);
    MPI_Finalize();
    return 0;
}
