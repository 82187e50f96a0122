/* A program with a tool, `other`, for a stack of tools (qmpi.c). The tool adds 100 to the tags of sends, and counts the
 * queries of a rank. With OTHER=replace it calls MPI_Ssend instead of MPI_Send; with OTHER=more it sends an additional
 * message, with the tag 50, before and after each barrier. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void qmpi_finally(void (*f)(void));

static int tool, ranks;

static int function_of_next(int number, void (**f)(void)) {
    int next;
    QMPI_Get_function(tool, number, f, &next);
    return next;
}
static int does(const char *what) {
    const char *other = getenv("OTHER");
    return other && !strcmp(other, what);
}
static int other_send(QMPI_Context context, int id, const void *buffer, int count, MPI_Datatype datatype, int to,
                      int tag, MPI_Comm comm) {
    QMPI_Send_t *f;
    int next = function_of_next(does("replace") ? 7 : 0, (void (**)(void))&f);
    return f(context, next, buffer, count, datatype, to, tag + 100, comm);
}
static int other_barrier(QMPI_Context context, int id, MPI_Comm comm) {
    QMPI_Barrier_t *f;
    QMPI_Send_t *send;
    int value = 0, next = function_of_next(8, (void (**)(void))&f);
    int next_of_send = function_of_next(0, (void (**)(void))&send);
    if (does("more")) send(context, next_of_send, &value, 1, MPI_INT, 0, 50, comm);
    int result = f(context, next, comm);
    if (does("more")) send(context, next_of_send, &value, 1, MPI_INT, 0, 50, comm);
    return result;
}
static int other_rank(QMPI_Context context, int id, MPI_Comm comm, int *rank) {
    QMPI_Comm_rank_t *f;
    int next = function_of_next(6, (void (**)(void))&f);
    ranks++;
    return f(context, next, comm, rank);
}
static void begin(int id) {
    tool = id;
    QMPI_Register_function(id, 0, (void (*)(void))other_send);
    QMPI_Register_function(id, 6, (void (*)(void))other_rank);
    QMPI_Register_function(id, 8, (void (*)(void))other_barrier);
}
__attribute__((constructor)) static void enlist(void) { QMPI_Register_tool_name("other", begin); }

static void ask(void) {
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

int main(int argc, char **argv) {
    int rank, size, value = 0;
    MPI_Init(&argc, &argv);
    qmpi_finally(ask);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 3; i++) MPI_Send(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    PMPI_Send(&value, 1, MPI_INT, 0, 9, MPI_COMM_WORLD); /* bypasses all tools before the library */
    printf("%d %d %.1f\n", rank, size, MPI_Wtime());
    MPI_Finalize();
    printf("asked for ranks: %d\n", ranks);
    return 0;
}
