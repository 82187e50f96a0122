/* Replaces Open MPI 6 for one process, with its events: no wheel has that version yet. Names, elements and bindings are those of
 * Open MPI's branch 6.0 of 2026 (its page on MPI_T events). The program says when an event is raised; what is bound, and when an
 * event arrives, is as in Open MPI:
 *  - handles are pointers;
 *  - instances arrive at MPI_T_CB_REQUIRE_NONE, those of the unordered source only while its time is read;
 *  - MPI calls from callbacks deadlock: here they end the program. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TYPES = 9, MOST = 64, NONE = 0, MPI_COMM_BOUND = 1 };
/* Which event is which. The program has the same list. */
enum { INITIALIZATION, FINALIZATION, CREATED, FREED, NAMED, HANDLER, WINDOW, WINDOW_FREED, RELEASED };

typedef void callback(void *instance, void *registration, int level, void *data);
typedef void dropped(MPI_Count count, void *registration, int source, int level, void *data);
struct instance {
    int event, source;
    MPI_Count tick;
    int64_t values[5];
};
struct registration {
    int event;
    void *bound, *data;
    callback *callback;
};

static const struct { const char *name, *elements; } types[TYPES] = {
    {"ompi.mpi.initialization", "iiiiu"}, /* model, level, rank, size, instance */
    {"ompi.mpi.finalization", "iiu"},     /* model, rank, instance */
    {"ompi.mpi.communicator_created", "iu"},
    {"ompi.mpi.communicator_freed", "u"},
    {"ompi.mpi.communicator_name_set", "u"}, /* bound to the communicator */
    {"ompi.mpi.errhandler_invoked", "iiuu"}, /* code, kind of object, handler, object */
    {"ompi.mpi.win_created", "liiu"},        /* size, unit, flavour, handle */
    {"ompi.mpi.win_freed", "iu"},
    {"ompi.mca.memory.patcher.released", "uu"}, /* number, bytes */
};

static struct registration registrations[MOST];
static int registered, is_in_callback, is_begun, is_ended, released;
static MPI_Count origin;

/* Objects of which programs know only the addresses. */
#define OBJECT(name) \
    extern char name[]; \
    char name[512] __attribute__((aligned(16)))
struct ompi_predefined_communicator_t { char room[512]; } ompi_mpi_comm_world, ompi_mpi_comm_self, ompi_mpi_comm_null;
struct ompi_predefined_info_t { char room[512]; } ompi_mpi_info_null;
struct ompi_predefined_datatype_t { char room[512]; } ompi_mpi_int32_t, ompi_mpi_int64_t, ompi_mpi_uint64_t, ompi_mpi_byte, ompi_mpi_datatype_null;
struct ompi_predefined_request_t { char room[512]; } ompi_request_null;
struct ompi_predefined_message_t { char room[512]; } ompi_message_null, ompi_message_no_proc;
struct ompi_predefined_win_t { char room[512]; } ompi_mpi_win_null;

static MPI_Count now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    MPI_Count ns = time.tv_sec * 1000000000LL + time.tv_nsec;
    if (!origin) origin = ns; /* of each process */
    return ns - origin;
}

static void deliver(struct instance *instance, void *object) {
    for (int n = 0; n < registered; n++) {
        struct registration *to = &registrations[n];
        if (to->event != instance->event || to->bound != object || !to->callback) continue;
        is_in_callback = 1;
        to->callback(instance, to, NONE, to->data);
        is_in_callback = 0;
    }
}

/* Raises an event of the ordered source; bound to `object`, if that is its kind. */
static void raise_event(int event, void *object, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
    struct instance instance = {event, 0, now(), {a, b, c, d, e}};
    deliver(&instance, event == NAMED ? object : NULL);
}

/* Memory was released: the event is delivered later. */
void ompi6_release(void) { released++; }
void ompi6_fail(MPI_Comm comm, int code) { raise_event(HANDLER, NULL, code, 1, 0xe0, (intptr_t)comm, 0); }

static void outside(void) {
    if (is_in_callback) abort();
}
static void put(char *to, int *length, const char *text) {
    if (to && length && *length > 0) snprintf(to, *length, "%s", text);
    if (length) *length = (int)strlen(text) + 1;
}

int PMPI_T_init_thread(int required, int *provided) { return *provided = required, 0; }
int PMPI_T_finalize(void) { return 0; }
int PMPI_T_source_get_num(int *count) { return *count = 2, 0; }
int PMPI_T_source_get_info(int source, char *name, int *name_len, char *desc, int *desc_len, int *ordering, MPI_Count *ticks,
                           MPI_Count *max, MPI_Info *info) {
    if (source > 1) return 1;
    put(name, name_len, source ? "ompi.unordered" : "ompi");
    put(desc, desc_len, source ? "events in no order" : "events in their order");
    *ordering = source; /* MPI_T_SOURCE_ORDERED is 0 */
    *ticks = 1000000000;
    *max = INT64_MAX;
    return 0;
}
int PMPI_T_source_get_timestamp(int source, MPI_Count *tick) {
    outside();
    *tick = now();
    for (; source == 1 && released > 0; released--) {
        struct instance instance = {RELEASED, 1, now(), {released, 4096 * released}};
        deliver(&instance, NULL);
    }
    return 0;
}
int PMPI_T_event_get_num(int *count) { return *count = TYPES, 0; }
int PMPI_T_event_get_info(int event, char *name, int *name_len, int *verbosity, MPI_Datatype elements[], MPI_Aint places[],
                          int *count, void **names, MPI_Info *info, char *desc, int *desc_len, int *bind) {
    if (event >= TYPES) return 1;
    put(name, name_len, types[event].name);
    put(desc, desc_len, "");
    *verbosity = 4;
    int all = (int)strlen(types[event].elements), at = 0;
    for (int n = 0; n < all && n < *count; n++) {
        char kind = types[event].elements[n];
        int size = kind == 'i' ? 4 : 8;
        at = (at + size - 1) / size * size; /* a hole before an address */
        elements[n] = kind == 'i' ? (MPI_Datatype)&ompi_mpi_int32_t : kind == 'l' ? (MPI_Datatype)&ompi_mpi_int64_t : (MPI_Datatype)&ompi_mpi_uint64_t;
        places[n] = at;
        at += size;
    }
    *count = all;
    *names = NULL;
    *bind = event == NAMED ? MPI_COMM_BOUND : NONE;
    return 0;
}
int PMPI_T_event_handle_alloc(int event, void *object, MPI_Info info, void **registration) {
    outside();
    if (registered == MOST || (event == NAMED) != (object != NULL)) return 1;
    registrations[registered] = (struct registration){event, object ? *(void **)object : NULL};
    *registration = &registrations[registered++];
    return 0;
}
int PMPI_T_event_handle_free(void *registration, void *data, void *released) {
    outside();
    ((struct registration *)registration)->callback = NULL;
    return 0;
}
int PMPI_T_event_register_callback(void *registration, int level, MPI_Info info, void *data, callback *callback) {
    struct registration *to = registration;
    if (level == NONE) to->data = data, to->callback = callback;
    return 0;
}
int PMPI_T_event_set_dropped_handler(void *registration, dropped *handler) { return 0; }
int PMPI_T_event_read(void *instance, int element, void *to) {
    struct instance *from = instance;
    char kind = types[from->event].elements[element];
    int32_t small = (int32_t)from->values[element];
    if (kind == 'i') memcpy(to, &small, sizeof small);
    else memcpy(to, &from->values[element], sizeof from->values[element]);
    return 0;
}
int PMPI_T_event_get_timestamp(void *instance, MPI_Count *tick) { return *tick = ((struct instance *)instance)->tick, 0; }
int PMPI_T_event_get_source(void *instance, int *source) { return *source = ((struct instance *)instance)->source, 0; }

/* As much of MPI as a tool and the program need. */
int PMPI_Get_library_version(char *to, int *length) {
    strcpy(to, "Open MPI v6.0.0, a stand-in");
    return *length = (int)strlen(to), 0;
}
int PMPI_Initialized(int *flag) { return *flag = is_begun, 0; }
int PMPI_Finalized(int *flag) { return *flag = is_ended, 0; }
int PMPI_Query_thread(int *level) { return *level = 0; }
int PMPI_Init(int *argc, char ***argv) {
    is_begun = 1;
    raise_event(INITIALIZATION, NULL, 0, 0, 0, 1, 7);
    return 0;
}
int PMPI_Finalize(void) {
    raise_event(FINALIZATION, NULL, 0, 0, 7, 0, 0);
    is_ended = 1;
    return 0;
}
int PMPI_Comm_rank(MPI_Comm comm, int *rank) { return *rank = 0; }
int PMPI_Comm_size(MPI_Comm comm, int *size) { return *size = 1, 0; }
int PMPI_Comm_test_inter(MPI_Comm comm, int *flag) { return *flag = 0; }
int PMPI_Comm_group(MPI_Comm comm, MPI_Group *group) { return *group = (MPI_Group)8, 0; }
int PMPI_Group_size(MPI_Group group, int *size) { return *size = 1, 0; }
int PMPI_Group_rank(MPI_Group group, int *rank) { return *rank = 0; }
int PMPI_Group_free(MPI_Group *group) { return 0; }
int PMPI_Group_translate_ranks(MPI_Group from, int count, const int ranks[], MPI_Group to, int out[]) {
    for (int n = 0; n < count; n++) out[n] = ranks[n];
    return 0;
}
int PMPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy) {
    *copy = malloc(512);
    raise_event(CREATED, NULL, 1, (intptr_t)*copy, 0, 0, 0);
    return 0;
}
int PMPI_Comm_set_name(MPI_Comm comm, const char *name) {
    raise_event(NAMED, comm, (intptr_t)comm, 0, 0, 0, 0);
    return 0;
}
int PMPI_Comm_free(MPI_Comm *comm) {
    raise_event(FREED, NULL, (intptr_t)*comm, 0, 0, 0, 0);
    free(*comm);
    *comm = MPI_COMM_NULL;
    return 0;
}
int PMPI_Win_create(void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *window) {
    *window = malloc(512);
    raise_event(WINDOW, NULL, size, unit, 1, (intptr_t)*window, 0);
    return 0;
}
int PMPI_Win_get_group(MPI_Win window, MPI_Group *group) { return *group = (MPI_Group)8, 0; }
int PMPI_Win_free(MPI_Win *window) {
    raise_event(WINDOW_FREED, NULL, 1, (intptr_t)*window, 0, 0, 0);
    free(*window);
    *window = (MPI_Win)&ompi_mpi_win_null;
    return 0;
}
#define SAME(type, name, parameters) type name parameters __attribute__((weak, alias("P" #name)))
SAME(int, MPI_Init, (int *, char ***));
SAME(int, MPI_Finalize, (void));
SAME(int, MPI_Comm_rank, (MPI_Comm, int *));
SAME(int, MPI_Comm_size, (MPI_Comm, int *));
SAME(int, MPI_Comm_dup, (MPI_Comm, MPI_Comm *));
SAME(int, MPI_Comm_set_name, (MPI_Comm, const char *));
SAME(int, MPI_Comm_free, (MPI_Comm *));
SAME(int, MPI_Win_create, (void *, MPI_Aint, int, MPI_Info, MPI_Comm, MPI_Win *));
SAME(int, MPI_Win_free, (MPI_Win *));
