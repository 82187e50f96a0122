/* Replaces an MPI library of one process, with MPI_T events: the wheels that the tests use raise none.
 *
 * It has MPICH's binary interface. The variable MOCK selects the library whose behaviour is imitated. A comment marks each
 * deviation from the standard:
 *   "plain"   events as the standard defines them
 *   "mpich"   reading a payload ends the process; sources and event types appear with MPI_Init
 *   "late"    a second, unordered source appears later and delivers only while its time is read
 *   "pairs"   two additional event types for the begin and the end of internal work of the library
 *   "bound"   one additional event type that is bound to communicators, of which one reuses the handle of the previous one
 *   "pvars"   performance variables: a level, and a timer of the same name
 *   "mpich-pvars"  more performance variables: continuous timers, each with a counter of the same name; one with several values,
 *             one that is bound to communicators, one of a datatype that the interface does not define, one that cannot be read
 *   "mpich-again", "openmpi-again"  MPI can be begun again, as long as a tool does not keep the interface at the wrong time
 *   "drops"   dropped events are reported to the dropped handler, without user data; the last ones, as in Open MPI, when the
 *             registration is freed
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEVELS = 4, MOST = 64, FREED = -1, DUPLICATE = 0x54000007 };

struct registration {
    int event;
    MPI_Comm bound;
    void *data[LEVELS];
    MPI_T_event_cb_function *callback[LEVELS];
    MPI_T_event_dropped_cb_function *dropped;
    long waiting; /* dropped events that are not reported yet */
};
struct instance {
    int source, values[2];
    long long tick;
};

static struct registration registrations[MOST];
static int registered, is_begun, begins, is_in_callback, late_events;
static long long origin, late_calls;

static int is(const char *what) {
    const char *mock = getenv("MOCK");
    return mock && !strcmp(mock, what);
}

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long ns = t.tv_sec * 1000000000LL + t.tv_nsec;
    /* Open MPI: an origin that each process captures when it is first asked. */
    if (!origin) origin = ns;
    return ns - origin;
}

/* Returns when an event was raised, for the program's own statistics. */
long long mock_raise(int event, int rank, int tag) {
    struct instance instance = {event == 2 ? 1 : 0, {rank, tag}, now()};
    for (int i = 0; i < registered; i++) {
        struct registration *r = &registrations[i];
        if (r->event != event || (event == 5 && r->bound != (rank ? MPI_COMM_WORLD : DUPLICATE))) continue;
        if (is("drops") && tag % 3 == 0) { /* as with a pool of one event */
            r->waiting++;
            continue;
        }
        /* Open MPI 6, MPICH: drops are summed, and reported before the next delivery; the user data is NULL. */
        if (r->waiting && r->dropped) {
            r->dropped(r->waiting, (MPI_T_event_registration)r, instance.source, MPI_T_CB_REQUIRE_NONE, NULL);
            r->waiting = 0;
        }
        int level = is("mpich") ? 1 : 0; /* Open MPI delivers at NONE, MPICH at MPI_RESTRICTED */
        if (!r->callback[level]) continue;
        is_in_callback = 1;
        r->callback[level]((MPI_T_event_instance)&instance, (MPI_T_event_registration)r, level, r->data[level]);
        is_in_callback = 0;
    }
    return instance.tick;
}

static void not_in_callback(const char *name) {
    if (!is_in_callback) return;
    /* Open MPI 6: MPI calls from callbacks deadlock. */
    fprintf(stderr, "mock: %s in a callback\n", name);
    abort();
}

static void put(char *to, int *length, const char *text) {
    if (to && length && *length > 0) snprintf(to, *length, "%s", text);
    if (length) *length = (int)strlen(text) + 1;
}

/* Tools' interface. */
static int has_tool, instances, lost_memory;
int PMPI_T_init_thread(int required, int *provided) {
    if (begins++) abort(); /* MPICH: a second beginning breaks handles */
    has_tool = 1;
    *provided = required;
    return 0;
}
static int given_back(void) {
    for (int i = 0; i < registered; i++)
        if (registrations[i].event != FREED) return 0;
    return 1;
}
int PMPI_T_finalize(void) {
    if (!has_tool || !given_back()) abort();
    /* MPICH main, src/mpi_t/mpit_finalize.c: removes the variables, although MPI still uses them. */
    if (is("mpich-again") && instances) abort();
    /* Open MPI 5: after MPI's end, it reports that shared memory cannot be removed. */
    if (is("openmpi-again") && !instances) fprintf(stderr, "mock: unlink(2) failed\n");
    if (!is("mpich-again") && !is("openmpi-again")) abort(); /* no library survives it for long */
    has_tool = 0;
    return 0;
}
static int begin_instance(void) {
    /* MPICH main, src/mpi_t/mpit.c: Assertion `pvar->active != TRUE`, when variables are registered that are there. */
    if (is("mpich-again") && is_begun && !instances && has_tool) abort();
    /* Open MPI main: components that were not closed for good at the end of the first session cannot be used any more. */
    if (lost_memory) fprintf(stderr, "mock: no shared memory\n");
    is_begun = 1;
    instances++;
    return 0;
}
static int end_instance(void) {
    instances--;
    lost_memory |= is("openmpi-again") && !instances && has_tool;
    return 0;
}
int PMPI_Session_init(MPI_Info info, MPI_Errhandler handler, MPI_Session *session) {
    *session = (MPI_Session)0x38000000;
    return begin_instance();
}
int MPI_Session_init(MPI_Info info, MPI_Errhandler handler, MPI_Session *session) {
    return PMPI_Session_init(info, handler, session);
}
int PMPI_Session_finalize(MPI_Session *session) {
    *session = MPI_SESSION_NULL;
    return end_instance();
}
int MPI_Session_finalize(MPI_Session *session) { return PMPI_Session_finalize(session); }
int PMPI_Group_from_session_pset(MPI_Session session, const char *name, MPI_Group *group) { return *group = 1, 0; }
int PMPI_Group_rank(MPI_Group group, int *rank) { return *rank = 0; }
/* Reports MPI_Init and MPI_Finalize only (MPI 5.0, section 11.4.1): sessions do not count. */
static int has_world, is_ended;
int PMPI_Initialized(int *flag) { return *flag = has_world, 0; }
int PMPI_Finalized(int *flag) { return *flag = is_ended, 0; }
static int sources(void) { return is("mpich") && !is_begun ? 0 : is("late") && late_calls > 1 ? 2 : 1; }
int PMPI_T_source_get_num(int *count) {
    late_calls++;
    *count = sources();
    return 0;
}
int PMPI_T_source_get_info(int source, char *name, int *name_len, char *desc, int *desc_len,
                           MPI_T_source_order *ordering, MPI_Count *ticks, MPI_Count *max, MPI_Info *info) {
    if (source >= sources()) return MPI_T_ERR_INVALID_INDEX;
    put(name, name_len, source ? "mock.unordered" : "mock");
    put(desc, desc_len, "a mock's queue");
    *ordering = source ? MPI_T_SOURCE_UNORDERED : MPI_T_SOURCE_ORDERED;
    *ticks = 1000000000;
    *max = 0x7fffffffffffffff;
    return 0;
}
int PMPI_T_source_get_timestamp(int source, MPI_Count *tick) {
    not_in_callback("MPI_T_source_get_timestamp");
    *tick = now();
    /* Open MPI 6, ompi.unordered: delivered only while the time is read. */
    if (source == 1 && late_events < 3) mock_raise(2, late_events++, 0);
    return 0;
}
int PMPI_T_event_get_num(int *count) {
    *count = is("mpich") && !is_begun ? 0 : is("pairs") ? 5 : is("bound") ? 6 : sources() == 2 ? 3 : 2;
    return 0;
}
int PMPI_T_event_get_info(int event, char *name, int *name_len, int *verbosity, MPI_Datatype types[],
                          MPI_Aint places[], int *count, MPI_T_enum *names, MPI_Info *info, char *desc,
                          int *desc_len, int *bind) {
    static const char *all[] = {"unexp_message_enqueued", "unexp_message_dequeued", "memory.released",
                                "progress_begin", "progress_end", "communicator_used"};
    if (event > 5) return MPI_T_ERR_INVALID_INDEX;
    put(name, name_len, all[event]);
    put(desc, desc_len, "a message that nobody waits for");
    *verbosity = MPI_T_VERBOSITY_USER_BASIC;
    if (*count >= 2) {
        types[0] = types[1] = MPI_INT;
        places[0] = 0;
        places[1] = sizeof(int);
    }
    *count = 2;
    *names = is("mpich") ? (MPI_T_enum)0x5a5a5a5a : (MPI_T_enum)1; /* MPICH: garbage */
    *bind = event == 5 ? MPI_T_BIND_MPI_COMM : MPI_T_BIND_NO_OBJECT;
    return 0;
}
int PMPI_T_enum_get_item(MPI_T_enum names, int index, int *value, char *name, int *name_len) {
    if (names != (MPI_T_enum)1) abort();
    *value = index;
    put(name, name_len, index ? "tag" : "from");
    return 0;
}
int PMPI_T_event_handle_alloc(int event, void *object, MPI_Info info, MPI_T_event_registration *registration) {
    not_in_callback("MPI_T_event_handle_alloc");
    if (registered == MOST) return MPI_T_ERR_OUT_OF_HANDLES;
    if ((event == 5) != (object != NULL)) abort(); /* an object of the program, or none */
    registrations[registered] = (struct registration){.event = event, .bound = object ? *(MPI_Comm *)object : 0};
    *registration = (MPI_T_event_registration)&registrations[registered++];
    return 0;
}
int PMPI_T_event_handle_free(MPI_T_event_registration registration, void *data, MPI_T_event_free_cb_function *callback) {
    not_in_callback("MPI_T_event_handle_free");
    struct registration *r = (struct registration *)registration;
    if (r->event == FREED) abort();
    if (r->waiting && r->dropped) r->dropped(r->waiting, registration, 0, MPI_T_CB_REQUIRE_NONE, NULL);
    *r = (struct registration){.event = FREED};
    return 0;
}
int PMPI_T_event_register_callback(MPI_T_event_registration registration, MPI_T_cb_safety level, MPI_Info info,
                                   void *data, MPI_T_event_cb_function *callback) {
    struct registration *r = (struct registration *)registration;
    r->data[level] = data;
    r->callback[level] = callback;
    return 0;
}
int PMPI_T_event_set_dropped_handler(MPI_T_event_registration registration,
                                     MPI_T_event_dropped_cb_function *handler) {
    if (!handler) abort(); /* MPICH: a NULL handler is called when drops are pending */
    ((struct registration *)registration)->dropped = handler;
    return 0;
}
int PMPI_T_event_read(MPI_T_event_instance instance, int element, void *to) {
    if (is("mpich")) abort(); /* MPICH 4.3.2 to main: an assertion about datatypes */
    memcpy(to, &((struct instance *)instance)->values[element], sizeof(int));
    return 0;
}
int PMPI_T_event_get_timestamp(MPI_T_event_instance instance, MPI_Count *tick) {
    *tick = ((struct instance *)instance)->tick;
    return 0;
}
int PMPI_T_event_get_source(MPI_T_event_instance instance, int *source) {
    *source = ((struct instance *)instance)->source;
    return 0;
}

/* MPICH: a timer and a counter have the same name; the value of a timer that was never stopped is garbage. */
static int is_mpich(void) { return is("mpich-pvars"); }
int PMPI_T_pvar_get_num(int *count) { return *count = is("pvars") ? 3 : is_mpich() ? 8 : 0, 0; }
/* MPICH main, src/include/mpitimpl.h: each timer is registered with a counter of its name; src/mpid/ch4 (OFI): one value for
 * each network interface. */
static const struct { const char *name; int class; MPI_Datatype datatype; int bind, count; } of_mpich[] = {
    {"time_of_match", MPI_T_PVAR_CLASS_TIMER, MPI_DOUBLE, MPI_T_BIND_NO_OBJECT, 1},
    {"time_of_match", MPI_T_PVAR_CLASS_COUNTER, MPI_UNSIGNED_LONG_LONG, MPI_T_BIND_NO_OBJECT, 1},
    {"nic_sent", MPI_T_PVAR_CLASS_COUNTER, MPI_UNSIGNED_LONG_LONG, MPI_T_BIND_NO_OBJECT, 3},
    {"nic_ports", MPI_T_PVAR_CLASS_LEVEL, MPI_UNSIGNED, MPI_T_BIND_NO_OBJECT, 3},
    {"nic_ports", MPI_T_PVAR_CLASS_SIZE, MPI_UNSIGNED, MPI_T_BIND_NO_OBJECT, 1},
    {"of_communicator", MPI_T_PVAR_CLASS_LEVEL, MPI_UNSIGNED, MPI_T_BIND_MPI_COMM, 1},
    {"name_of_queue", MPI_T_PVAR_CLASS_STATE, MPI_CHAR, MPI_T_BIND_NO_OBJECT, 1},
    {"not_readable", MPI_T_PVAR_CLASS_LEVEL, MPI_UNSIGNED, MPI_T_BIND_NO_OBJECT, 1},
};
int PMPI_T_pvar_get_info(int index, char *name, int *name_len, int *verbosity, int *class, MPI_Datatype *datatype,
                         MPI_T_enum *names, char *desc, int *desc_len, int *bind, int *readonly, int *continuous,
                         int *atomic) {
    if (is_mpich()) {
        put(name, name_len, of_mpich[index].name);
        put(desc, desc_len, "");
        *class = of_mpich[index].class;
        *datatype = of_mpich[index].datatype;
        *bind = of_mpich[index].bind;
        *verbosity = MPI_T_VERBOSITY_USER_BASIC;
        *continuous = *readonly = 1;
        *atomic = 0;
        return 0;
    }
    if (index == 0) return MPI_T_ERR_INVALID_INDEX; /* Open MPI: fails for most of its counters */
    put(name, name_len, "queue_length");
    put(desc, desc_len, "messages that nobody waits for");
    *verbosity = MPI_T_VERBOSITY_USER_BASIC;
    *class = index == 1 ? MPI_T_PVAR_CLASS_TIMER : MPI_T_PVAR_CLASS_LEVEL;
    *datatype = index == 1 ? MPI_DOUBLE : MPI_UNSIGNED;
    *bind = MPI_T_BIND_NO_OBJECT;
    *readonly = *continuous = *atomic = 0;
    return 0;
}
int PMPI_T_pvar_session_create(MPI_T_pvar_session *session) { return *session = (MPI_T_pvar_session)8, 0; }
static int is_started;
int PMPI_T_pvar_handle_alloc(MPI_T_pvar_session session, int index, void *object, MPI_T_pvar_handle *handle,
                             int *count) {
    if (session != (MPI_T_pvar_session)8 || object) abort();
    *handle = (MPI_T_pvar_handle)(long)(16 + index);
    return *count = is_mpich() ? of_mpich[index].count : 1, 0;
}
int PMPI_T_pvar_start(MPI_T_pvar_session session, MPI_T_pvar_handle handle) {
    if (is_mpich()) return MPI_T_ERR_PVAR_NO_STARTSTOP; /* continuous variables cannot be started */
    return is_started = 1, 0;
}
int PMPI_T_pvar_handle_free(MPI_T_pvar_session session, MPI_T_pvar_handle *handle) { return 0; }
int PMPI_T_pvar_session_free(MPI_T_pvar_session *session) { return 0; }
int PMPI_T_pvar_read(MPI_T_pvar_session session, MPI_T_pvar_handle handle, void *to) {
    if (is_mpich()) {
        int index = (int)(long)handle - 16;
        if (index == 0) return *(double *)to = 4.9e-310, 0; /* MPICH: a timer's value is meaningless */
        if (index == 7) return MPI_T_ERR_INVALID;
        for (int i = 0; i < of_mpich[index].count; i++) {
            if (of_mpich[index].datatype == MPI_UNSIGNED) ((unsigned *)to)[i] = 10 * index + i;
            else ((unsigned long long *)to)[i] = (1ull << 40) + 10 * index + i;
        }
        return 0;
    }
    if (!is_started || handle != (MPI_T_pvar_handle)18) abort(); /* Open MPI: counters must be started */
    *(unsigned *)to = 7;
    return 0;
}

/* As much of MPI as a tool and the program need. */
int PMPI_Get_library_version(char *to, int *length) {
    strcpy(to, is("mpich")                         ? "MPICH Version: mock"
               : is("drops") || is("openmpi-again") ? "Intel(R) MPI Library mock, as Open MPI is"
                                                    : "Intel(R) MPI Library mock");
    *length = (int)strlen(to);
    return 0;
}
int PMPI_Init(int *argc, char ***argv) {
    has_world = 1;
    return begin_instance();
}
int MPI_Init(int *argc, char ***argv) { return PMPI_Init(argc, argv); }
int PMPI_Finalize(void) {
    is_ended = 1;
    return end_instance();
}
int MPI_Finalize(void) { return PMPI_Finalize(); }
int PMPI_Comm_rank(MPI_Comm comm, int *rank) { return *rank = 0; }
int PMPI_Comm_size(MPI_Comm comm, int *size) { return *size = 1, 0; }
/* Handles of freed communicators are reused. */
int PMPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy) { return *copy = DUPLICATE, 0; }
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy) { return PMPI_Comm_dup(comm, copy); }
int PMPI_Comm_free(MPI_Comm *comm) { return *comm = MPI_COMM_NULL, 0; }
int MPI_Comm_free(MPI_Comm *comm) { return PMPI_Comm_free(comm); }
int PMPI_Comm_test_inter(MPI_Comm comm, int *flag) { return *flag = 0; }
int PMPI_Comm_group(MPI_Comm comm, MPI_Group *group) { return *group = 1, 0; }
int PMPI_Group_size(MPI_Group group, int *size) { return *size = 1, 0; }
int PMPI_Group_translate_ranks(MPI_Group from, int count, const int ranks[], MPI_Group to, int out[]) {
    for (int i = 0; i < count; i++) out[i] = ranks[i];
    return 0;
}
int PMPI_Group_free(MPI_Group *group) { return 0; }
int PMPI_Query_thread(int *level) { return *level = 0; }
/* An MPI that calls MPI: the second call is internal. */
int MPI_Comm_size(MPI_Comm comm, int *size) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    return PMPI_Comm_size(comm, size);
}
int MPI_Comm_rank(MPI_Comm comm, int *rank) { return PMPI_Comm_rank(comm, rank); }
