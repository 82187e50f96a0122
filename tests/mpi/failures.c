/* Calls that fail, and requests that are freed: sends that are refused or cancelled, messages that are longer than their
 * buffers, operations that fail, receives that are freed when they are complete. Between them, successful messages with
 * the same tags. Needs two processes. The argument "cancel" means that sends can be cancelled. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static const MPI_Comm W = MPI_COMM_WORLD;
static long out[8], in[8];

static int class_of(int code) {
    int class = code;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    return class;
}

int main(int argc, char **argv) {
    int rank, failed = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &rank);
    MPI_Comm_set_errhandler(W, MPI_ERRORS_RETURN);
    int other = 1 - rank;
    MPI_Request request, two[2];
    MPI_Status status, statuses[2];

    /* Refused: the tag is not valid. */
    failed += MPI_Send(out, 1, MPI_LONG, other, -5, W) != MPI_SUCCESS;
    failed += MPI_Isend(out, 1, MPI_LONG, other, -5, W, &request) != MPI_SUCCESS;
    failed += MPI_Sendrecv(out, 1, MPI_LONG, other, -5, in, 1, MPI_LONG, other, 0, W, &status) != MPI_SUCCESS;

    /* Too long: each way to receive, and after each a message that fits. */
    if (rank == 0) {
        for (int n = 0; n < 4; n++) {
            MPI_Send(out, 8, MPI_LONG, 1, 2, W);
            MPI_Send(out, 1, MPI_LONG, 1, 2, W);
        }
    } else {
        int codes[4];
        MPI_Probe(0, 2, W, &status);
        codes[0] = MPI_Recv(in, 1, MPI_LONG, 0, 2, W, &status);
        MPI_Recv(in, 1, MPI_LONG, 0, 2, W, MPI_STATUS_IGNORE);
        MPI_Irecv(in, 1, MPI_LONG, 0, 2, W, &request);
        codes[1] = MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Recv(in, 1, MPI_LONG, 0, 2, W, &status);
        MPI_Irecv(in, 1, MPI_LONG, 0, 2, W, &two[0]);
        MPI_Irecv(in + 1, 1, MPI_LONG, 0, 2, W, &two[1]);
        MPI_Waitall(2, two, statuses);
        codes[2] = statuses[0].MPI_ERROR;
        /* A receive that fails may leave others incomplete. */
        if (two[1] != MPI_REQUEST_NULL) MPI_Wait(&two[1], MPI_STATUS_IGNORE);
        MPI_Irecv(in, 1, MPI_LONG, MPI_ANY_SOURCE, 2, W, &request);
        int index;
        codes[3] = MPI_Waitany(1, &request, &index, &status);
        MPI_Recv(in, 1, MPI_LONG, 0, 2, W, &status);
        for (int n = 0; n < 4; n++) failed += class_of(codes[n]) == MPI_ERR_TRUNCATE;
    }

    /* An operation that fails in all processes. */
    failed += MPI_Bcast(in, 1, MPI_LONG, 7, W) != MPI_SUCCESS;
    MPI_Barrier(W);

    /* Complete, and freed without a wait. */
    MPI_Send(out, 1, MPI_LONG, other, 4, W);
    MPI_Irecv(in, 1, MPI_LONG, other, 4, W, &request);
    for (int flag = 0; !flag;) MPI_Request_get_status(request, &flag, &status);
    MPI_Request_free(&request);
    MPI_Sendrecv(out, 1, MPI_LONG, other, 4, in, 1, MPI_LONG, other, 4, W, MPI_STATUS_IGNORE);

    /* Cancelled, and waited for or freed; then the same tag again. */
    if (argc > 1 && !strcmp(argv[1], "cancel")) {
        for (int n = 0; n < 2; n++) {
            MPI_Issend(out, 1, MPI_LONG, 0, 5, MPI_COMM_SELF, &request);
            MPI_Cancel(&request);
            int is_cancelled = 0;
            if (n == 0) {
                MPI_Wait(&request, &status);
            } else {
                for (int flag = 0; !flag;) MPI_Request_get_status(request, &flag, &status);
                MPI_Request_free(&request);
            }
            MPI_Test_cancelled(&status, &is_cancelled);
            failed += is_cancelled;
            MPI_Sendrecv(out, 2, MPI_LONG, 0, 5, in, 2, MPI_LONG, 0, 5, MPI_COMM_SELF, &status);
        }
    }
#if MPI_VERSION >= 4
    for (int n = 0; n < 3; n++) {
        MPI_Isendrecv(out, 1 + n, MPI_LONG, other, 6, in, 1 + n, MPI_LONG, other, 6, W, &request);
        MPI_Wait(&request, n == 1 ? MPI_STATUS_IGNORE : &status);
        MPI_Isendrecv_replace(in, 1, MPI_LONG, other, 7, other, 7, W, &request);
        MPI_Waitall(1, &request, statuses);
    }
#endif
    MPI_Barrier(W);
    printf("rank %d: %d of these failed\n", rank, failed);
    MPI_Finalize();
    return 0;
}
