/* A program, and a tool of its own, `other`, for a stack of tools (qmpi.c): the tool adds 100 to the tags of what is
 * sent, and counts who asks for a rank. */
#include <mpi.h>
#include <stdio.h>

void qmpi_finally(void (*f)(void));

static int tool, ranks;

static int function_of_next(int number, void (**f)(void)) {
    int next;
    QMPI_Get_function(tool, number, f, &next);
    return next;
}
static int other_send(QMPI_Context context, int id, const void *buffer, int count, MPI_Datatype datatype, int to,
                      int tag, MPI_Comm comm) {
    QMPI_Send_t *f;
    int next = function_of_next(0, (void (**)(void))&f);
    return f(context, next, buffer, count, datatype, to, tag + 100, comm);
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
    PMPI_Send(&value, 1, MPI_INT, 0, 9, MPI_COMM_WORLD); /* past all that stands before the library */
    printf("%d %d %.1f\n", rank, size, MPI_Wtime());
    MPI_Finalize();
    printf("asked for ranks: %d\n", ranks);
    return 0;
}
