/* The first operations on communicators that are made in every way, and on some that only the library knows: PMPI_Comm_dup
   makes them. Of each exchange around the ring, one process is late. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

static int made, sum;

static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* The late process's neighbour sends early and waits long. */
static void exchange(MPI_Comm comm) {
    int rank, size, value;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (rank == size - 1) sleep_ms(20);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 4, &value, 1, MPI_INT, (rank + size - 1) % size, 4, comm, MPI_STATUS_IGNORE);
    sum += value;
    made++;
}

static void exchange_and_free(MPI_Comm comm) {
    exchange(comm);
    MPI_Comm_free(&comm);
}

static void make_all(void) {
    MPI_Comm comm, graph;
    MPI_Group group;
    MPI_Request request;
    int rank, size, one = 1, neighbour;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    neighbour = (rank + 1) % size;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm), exchange_and_free(comm);
    MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request), MPI_Wait(&request, MPI_STATUS_IGNORE), exchange_and_free(comm);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm), exchange_and_free(comm);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm), exchange_and_free(comm);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Comm_create(MPI_COMM_WORLD, group, &comm), exchange_and_free(comm);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 7, &comm), exchange_and_free(comm);
    MPI_Group_free(&group);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &one, 0, &graph), exchange(graph);
    MPI_Cart_sub(graph, &one, &comm), exchange_and_free(comm);
    MPI_Comm_free(&graph);
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &one, &neighbour, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    exchange_and_free(comm);
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
    MPIX_Comm_shrink(MPI_COMM_WORLD, &comm), exchange_and_free(comm);
#endif
#ifdef MPICH
    MPIX_Stream_comm_create(MPI_COMM_WORLD, MPIX_STREAM_NULL, &comm), exchange_and_free(comm);
#endif
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "all", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm), exchange_and_free(comm);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
}

static MPI_Comm unknown(void) {
    MPI_Comm comm;
    PMPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return comm;
}

/* Around the ring, with all ways to begin. All processes use each of these communicators, and in the same order: it has
   no other name. */
static void use_unknown(void) {
    int rank, size, value, next, previous, all;
    MPI_Request requests[2];
    MPI_Comm comm;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size, previous = (rank + size - 1) % size;
    exchange_and_free(unknown());
    comm = unknown();
    if (rank % 2 == 0) MPI_Ssend(&rank, 1, MPI_INT, next, 0, comm);
    else sleep_ms(20), MPI_Recv(&value, 1, MPI_INT, previous, 0, comm, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
    comm = unknown();
    MPI_Isend(&rank, 1, MPI_INT, next, 0, comm, &requests[0]);
    MPI_Irecv(&value, 1, MPI_INT, previous, 0, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    sum += value;
    MPI_Comm_free(&comm);
    comm = unknown();
    MPI_Isendrecv(&rank, 1, MPI_INT, next, 0, &value, 1, MPI_INT, previous, 0, comm, requests);
    MPI_Wait(requests, MPI_STATUS_IGNORE);
    sum += value;
    MPI_Comm_free(&comm);
    comm = unknown();
    if (rank == 2) sleep_ms(20);
    MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    comm = unknown();
    MPI_Iallreduce(&rank, &value, 1, MPI_INT, MPI_SUM, comm, requests);
    MPI_Wait(requests, MPI_STATUS_IGNORE);
    sum += all + value;
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    make_all();
    use_unknown();
    printf("rank %d: %d made, sum %d\n", rank, made, sum);
    MPI_Finalize();
    return 0;
}
