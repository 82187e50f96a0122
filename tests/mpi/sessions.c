/* Sessions only, without MPI_COMM_WORLD; and calls of MPI_Pcontrol. */
#include <mpi.h>
#include <stdio.h>

int main(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int rank, size, value, sum;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "all", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &value, 1, MPI_INT, (rank + size - 1) % size, 0, comm,
                 MPI_STATUS_IGNORE);
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Pcontrol(0);
    MPI_Barrier(comm);
    MPI_Pcontrol(1);
    MPI_Barrier(comm);
    MPI_Pcontrol(2);
    MPI_Pcontrol(7, 1, 2);
    printf("rank %d: %d %d\n", rank, value, sum);
    MPI_Group_free(&group);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    return 0;
}
