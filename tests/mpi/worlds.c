/* A program that spawns itself twice, and exchanges messages with the processes of the other worlds on every kind of
 * communicator that leads there. Each process prints how many messages it has sent. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int sent;

/* Sends a number to one process and receives one from another. */
static void exchange(MPI_Comm comm, int to, int from, int tag) {
    int out = 1, in = 0;
    MPI_Request request;
    MPI_Irecv(&in, 1, MPI_INT, from, tag, comm, &request);
    MPI_Send(&out, 1, MPI_INT, to, tag, comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    sent++;
}

static void ring(MPI_Comm comm, int steps) {
    int rank, size, sum = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int step = 0; step < steps; step++) exchange(comm, (rank + 1) % size, (rank + size - 1) % size, 3);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
}

/* Does the same in both worlds that an intercommunicator joins. */
static void together(MPI_Comm inter, int is_parent) {
    int rank, place;
    MPI_Comm again, all, part;
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm_rank(inter, &rank);
    exchange(inter, rank, rank, 1);
    MPI_Comm_dup(inter, &again);
    exchange(again, 1 - rank, 1 - rank, 1);
    MPI_Intercomm_merge(again, !is_parent, &all);
    ring(all, 10);
    MPI_Comm_rank(all, &place);
    MPI_Comm_split(all, place % 2, place, &part);
    ring(part, 4);
    MPI_Comm_free(&part);
    MPI_Comm_split(all, is_parent, place, &part);
    ring(part, 2);
    MPI_Comm_free(&part);
    MPI_Comm_free(&all);
    MPI_Comm_free(&again);
    /* The first process of each world meets the other one a second time. */
    if (rank == 0) {
        if (is_parent) {
            /* MPICH 5.0 has no port after a spawn. */
            if (MPI_Open_port(MPI_INFO_NULL, port) != MPI_SUCCESS) port[0] = 0;
            MPI_Send(port, sizeof port, MPI_CHAR, 0, 2, inter);
            sent++;
            if (port[0]) MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &part);
        } else {
            MPI_Recv(port, sizeof port, MPI_CHAR, 0, 2, inter, MPI_STATUS_IGNORE);
            if (port[0]) MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &part);
        }
        if (port[0]) {
            exchange(part, 0, 0, 5);
            MPI_Comm_disconnect(&part);
            if (is_parent) MPI_Close_port(port);
        }
    }
    MPI_Barrier(inter);
    MPI_Comm_disconnect(&inter);
}

int main(int argc, char **argv) {
    MPI_Comm parent, children[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL)
        together(parent, 0);
    else {
        /* One immediately after the other. */
        for (int n = 0; n < 2; n++)
            MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children[n], MPI_ERRCODES_IGNORE);
        for (int n = 0; n < 2; n++) together(children[n], 1);
    }
    printf("sent %d\n", sent);
    MPI_Finalize();
    return 0;
}
