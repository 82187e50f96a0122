/* Replaces an MPI library of one process, with QMPI: a stack of tools through which calls pass. It has MPICH's binary
 * interface. Its function numbers differ from those of other versions, as in each version. It ends the program when an unknown
 * number is requested, when a listed tool is missing, or when a tool registers that is not listed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEND, UNKNOWN, FINALIZE, COMM_SIZE, INIT, WTIME, COMM_RANK, SSEND, BARRIER, LAST, MOST = 8 };

typedef void (*function)(void);
static function table[MOST][LAST]; /* by tool; 0: the library itself */
static void (*beginnings[MOST])(int);
static char names[MOST][32];
static int tools = -1, is_begun;
static void (*finally)(void);

static void read_list(void) {
    if (tools >= 0) return;
    tools = 0;
    const char *list = getenv("MPIR_CVAR_QMPI_TOOL_LIST");
    char text[256];
    snprintf(text, sizeof(text), "%s", list ? list : "");
    for (char *name = strtok(text, ":"); name; name = strtok(NULL, ":"))
        snprintf(names[++tools], sizeof(names[0]), "%s", name);
}
int QMPI_Register_tool_name(const char *name, void (*begin)(int)) {
    read_list();
    int is_listed = 0;
    for (int tool = 1; tool <= tools; tool++)
        if (!strcmp(names[tool], name)) beginnings[tool] = begin, is_listed = 1;
    if (!is_listed && !strcmp(name, "annals")) abort();
    return is_listed ? 0 : 15;
}
int QMPI_Register_function(int tool, int number, function f) {
    if (tool < 1 || tool > tools || number < 0 || number >= LAST) abort();
    table[tool][number] = f;
    return 0;
}
int QMPI_Get_function(int tool, int number, function *f, int *next) {
    if (tool < 0 || tool > tools || number < 0 || number >= LAST) abort();
    for (*next = tool + 1; *next <= tools; ++*next)
        if ((*f = table[*next][number])) return 0;
    *next = 0;
    *f = table[0][number];
    return 0;
}
static function first(int number, int *tool) {
    function f;
    if (!is_begun) {
        is_begun = 1;
        read_list();
        for (int i = 1; i <= tools; i++) {
            if (!beginnings[i]) abort(); /* MPICH: calls address 0 */
            beginnings[i](i);
        }
    }
    QMPI_Get_function(0, number, &f, tool);
    return f;
}

#define STACKED(NUMBER, RESULT, NAME, PARAMETERS, ...)                                          \
    RESULT PMPI_##NAME PARAMETERS {                                                             \
        QMPI_Context context = {NULL};                                                          \
        int tool;                                                                               \
        QMPI_##NAME##_t *f = (QMPI_##NAME##_t *)first(NUMBER, &tool);                           \
        return f(context, tool __VA_ARGS__);                                                    \
    }                                                                                           \
    RESULT MPI_##NAME PARAMETERS __attribute__((alias("PMPI_" #NAME)))
#define COMMA ,

STACKED(INIT, int, Init, (int *argc, char ***argv), COMMA argc COMMA argv);
STACKED(FINALIZE, int, Finalize, (void));
STACKED(COMM_RANK, int, Comm_rank, (MPI_Comm comm, int *rank), COMMA comm COMMA rank);
STACKED(COMM_SIZE, int, Comm_size, (MPI_Comm comm, int *size), COMMA comm COMMA size);
STACKED(WTIME, double, Wtime, (void));
STACKED(SEND, int, Send, (const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm),
        COMMA buffer COMMA count COMMA datatype COMMA to COMMA tag COMMA comm);

STACKED(SSEND, int, Ssend, (const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm),
        COMMA buffer COMMA count COMMA datatype COMMA to COMMA tag COMMA comm);
STACKED(BARRIER, int, Barrier, (MPI_Comm comm), COMMA comm);

int QMPI_Init(QMPI_Context context, int tool, int *argc, char ***argv) { return 0; }
int QMPI_Comm_rank(QMPI_Context context, int tool, MPI_Comm comm, int *rank) { return *rank = 0; }
int QMPI_Comm_size(QMPI_Context context, int tool, MPI_Comm comm, int *size) { return *size = 1, 0; }
double QMPI_Wtime(QMPI_Context context, int tool) { return 2.5; }
int QMPI_Send(QMPI_Context context, int tool, const void *buffer, int count, MPI_Datatype datatype, int to, int tag,
              MPI_Comm comm) {
    int rank;
    PMPI_Comm_rank(comm, &rank); /* an internal call, through the stack */
    printf("sent %d\n", tag);
    return 0;
}
int QMPI_Ssend(QMPI_Context context, int tool, const void *buffer, int count, MPI_Datatype datatype, int to, int tag,
               MPI_Comm comm) {
    int rank;
    PMPI_Comm_rank(comm, &rank);
    printf("sent %d\n", tag);
    return 0;
}
int QMPI_Barrier(QMPI_Context context, int tool, MPI_Comm comm) {
    /* An internal call by a PMPI_ name enters the stack at its front: MPICH main generates every function so that it calls
     * the first tool (maint/local_python/binding_c.py). */
    int value = 0;
    return PMPI_Send(&value, 1, MPI_INT, 0, 2000, comm);
}
int QMPI_Finalize(QMPI_Context context, int tool) {
    if (finally) finally(); /* a function of the program, which may call MPI */
    return 0;
}
/* A function that no tool knows. */
int QMPI_Secret(QMPI_Context context, int tool) { return 0; }

__attribute__((constructor)) static void fill(void) {
    function own[LAST] = {(function)QMPI_Send, (function)QMPI_Secret, (function)QMPI_Finalize, (function)QMPI_Comm_size,
                          (function)QMPI_Init, (function)QMPI_Wtime, (function)QMPI_Comm_rank,
                          (function)QMPI_Ssend, (function)QMPI_Barrier};
    memcpy(table[0], own, sizeof(own));
}

void qmpi_finally(void (*f)(void)) { finally = f; }

/* Other functions that a tool needs. */
int PMPI_Get_library_version(char *to, int *length) {
    int tool;
    first(INIT, &tool);
    return *length = sprintf(to, "Intel(R) MPI Library stand-in"), 0;
}
int PMPI_Query_thread(int *level) { return *level = 0; }
int PMPI_Type_size(MPI_Datatype datatype, int *size) { return *size = 4, 0; }
int PMPI_Comm_test_inter(MPI_Comm comm, int *flag) { return *flag = 0; }
int PMPI_Comm_group(MPI_Comm comm, MPI_Group *group) { return *group = 1, 0; }
int PMPI_Group_size(MPI_Group group, int *size) { return *size = 1, 0; }
int PMPI_Group_translate_ranks(MPI_Group from, int count, const int ranks[], MPI_Group to, int out[]) {
    for (int i = 0; i < count; i++) out[i] = ranks[i];
    return 0;
}
int PMPI_Group_free(MPI_Group *group) { return 0; }
