/*
 * Annals' event interface: producers raise events and show variables, tools register for them and read them.
 *
 * The model and the calls, apart from the prefix, are those of MPI's tool information interface (MPI 4.1
 * section 16.3): to port a tool for MPI_T, rename MPI_T_ to ANNALS_T_ and annals_t_, and MPI_ of the
 * datatypes likewise. The functions are those of the process's own runtime; MPI is neither needed nor used.
 *
 * RESULTS. Calls return ANNALS_T_SUCCESS or an error; nothing is fatal. OUT pointers may be NULL where MPI
 * allows it. Texts are returned by MPI's convention: the caller passes the length of the buffer, and gets that
 * of the text with its zero; a text that does not fit is cut.
 *
 * THREADS AND SIGNAL HANDLERS. All threads may make all calls. Safe in signal handlers are: raising, reporting
 * drops, freeing a registration, everything with an instance, reading a source's time, and starting, stopping,
 * reading, writing and resetting performance variables. Other calls return ANNALS_T_ERR_NOT_ACCESSIBLE in
 * callbacks at ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, and in handlers that interrupted such a call.
 *
 * UNWINDING. Callbacks, handlers, free callbacks, clocks of sources and functions of variables may be left by an
 * exception, by longjmp, or by the end or the cancellation of their thread. What called them counts as over from
 * the thread's next event or call on, or from its end: an instance that was being delivered as deferred is not
 * delivered again, and the other registrations do not get the instance. Asynchronous cancellation is not
 * supported inside these calls.
 */
#ifndef ANNALS_T_H
#define ANNALS_T_H

#include "annals.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Constants ---- */

enum {
    ANNALS_T_SUCCESS = 0,
    ANNALS_T_ERR_INVALID = 1,
    ANNALS_T_ERR_MEMORY = 2,
    ANNALS_T_ERR_NOT_INITIALIZED = 3,
    ANNALS_T_ERR_CANNOT_INIT = 4,
    ANNALS_T_ERR_NOT_ACCESSIBLE = 5,
    ANNALS_T_ERR_NOT_SUPPORTED = 6,
    ANNALS_T_ERR_INVALID_INDEX = 7,
    ANNALS_T_ERR_INVALID_ITEM = 8,
    ANNALS_T_ERR_INVALID_NAME = 9,
    ANNALS_T_ERR_INVALID_HANDLE = 10,
    ANNALS_T_ERR_OUT_OF_HANDLES = 11,
    ANNALS_T_ERR_OUT_OF_SESSIONS = 12,
    ANNALS_T_ERR_INVALID_SESSION = 13,
    ANNALS_T_ERR_CVAR_SET_NOT_NOW = 14,
    ANNALS_T_ERR_CVAR_SET_NEVER = 15,
    ANNALS_T_ERR_PVAR_NO_STARTSTOP = 16,
    ANNALS_T_ERR_PVAR_NO_WRITE = 17,
    ANNALS_T_ERR_PVAR_NO_ATOMIC = 18
};

enum {
    ANNALS_T_THREAD_SINGLE = 0,
    ANNALS_T_THREAD_FUNNELED = 1,
    ANNALS_T_THREAD_SERIALIZED = 2,
    ANNALS_T_THREAD_MULTIPLE = 3
};

typedef int annals_t_source_order;
enum { ANNALS_T_SOURCE_ORDERED = 0, ANNALS_T_SOURCE_UNORDERED = 1 };

typedef int annals_t_cb_safety;
enum {
    ANNALS_T_CB_REQUIRE_NONE = 0,
    ANNALS_T_CB_REQUIRE_RESTRICTED = 1, /* MPI_T_CB_REQUIRE_MPI_RESTRICTED */
    ANNALS_T_CB_REQUIRE_THREAD_SAFE = 2,
    ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE = 3
};

typedef int annals_t_datatype;
enum {
    ANNALS_T_INT = 0,                /* int32_t */
    ANNALS_T_UNSIGNED = 1,           /* uint32_t */
    ANNALS_T_UNSIGNED_LONG = 2,      /* uint64_t */
    ANNALS_T_UNSIGNED_LONG_LONG = 3, /* uint64_t */
    ANNALS_T_COUNT = 4,              /* int64_t */
    ANNALS_T_CHAR = 5,               /* char */
    ANNALS_T_DOUBLE = 6              /* double */
};

enum {
    ANNALS_T_VERBOSITY_USER_BASIC = 0,
    ANNALS_T_VERBOSITY_USER_DETAIL = 1,
    ANNALS_T_VERBOSITY_USER_ALL = 2,
    ANNALS_T_VERBOSITY_TUNER_BASIC = 3,
    ANNALS_T_VERBOSITY_TUNER_DETAIL = 4,
    ANNALS_T_VERBOSITY_TUNER_ALL = 5,
    ANNALS_T_VERBOSITY_DEV_BASIC = 6,
    ANNALS_T_VERBOSITY_DEV_DETAIL = 7,
    ANNALS_T_VERBOSITY_DEV_ALL = 8
};

enum {
    ANNALS_T_BIND_NO_OBJECT = 0,
    ANNALS_T_BIND_COMM = 1,
    ANNALS_T_BIND_DATATYPE = 2,
    ANNALS_T_BIND_ERRHANDLER = 3,
    ANNALS_T_BIND_FILE = 4,
    ANNALS_T_BIND_GROUP = 5,
    ANNALS_T_BIND_OP = 6,
    ANNALS_T_BIND_REQUEST = 7,
    ANNALS_T_BIND_WIN = 8,
    ANNALS_T_BIND_MESSAGE = 9,
    ANNALS_T_BIND_INFO = 10,
    ANNALS_T_BIND_SESSION = 11
};

/* Performance variables: the kind of value. */
enum {
    ANNALS_T_PVAR_CLASS_STATE = 0,         /* one of several states; ANNALS_T_INT */
    ANNALS_T_PVAR_CLASS_LEVEL = 1,         /* how much of a resource is in use */
    ANNALS_T_PVAR_CLASS_SIZE = 2,          /* how large a resource is */
    ANNALS_T_PVAR_CLASS_PERCENTAGE = 3,    /* which part is in use, 0 to 1; ANNALS_T_DOUBLE */
    ANNALS_T_PVAR_CLASS_HIGHWATERMARK = 4, /* the most that was in use */
    ANNALS_T_PVAR_CLASS_LOWWATERMARK = 5,  /* the least that was in use */
    ANNALS_T_PVAR_CLASS_COUNTER = 6,       /* how often something happened; unsigned integers */
    ANNALS_T_PVAR_CLASS_AGGREGATE = 7,     /* the sum of something */
    ANNALS_T_PVAR_CLASS_TIMER = 8,         /* the sum of times; of an ANNALS_T_DOUBLE, in seconds */
    ANNALS_T_PVAR_CLASS_GENERIC = 9        /* something else, of any datatype */
};

/* Control variables: when and where they may be set. */
enum {
    ANNALS_T_SCOPE_CONSTANT = 0, /* never */
    ANNALS_T_SCOPE_READONLY = 1, /* not by users, but it may change */
    ANNALS_T_SCOPE_LOCAL = 2,    /* perhaps, in this process alone */
    ANNALS_T_SCOPE_GROUP = 3,    /* perhaps, in a group of processes, to consistent values */
    ANNALS_T_SCOPE_GROUP_EQ = 4, /* perhaps, in a group of processes, to the same value */
    ANNALS_T_SCOPE_ALL = 5,      /* perhaps, in all processes, to consistent values */
    ANNALS_T_SCOPE_ALL_EQ = 6    /* perhaps, in all processes, to the same value */
};

/* ---- Handles ---- */

typedef int64_t annals_t_count;  /* MPI_Count */
typedef intptr_t annals_t_aint;  /* MPI_Aint */
typedef uint64_t annals_t_object; /* the handle of an object, as its producer has it */
typedef int annals_t_enum;
#define ANNALS_T_ENUM_NULL (-1)

typedef struct annals_t_info_object *annals_t_info; /* MPI_Info */
#define ANNALS_T_INFO_NULL ((annals_t_info)0)

/* For freed registrations, and numbers that never were one, calls return ANNALS_T_ERR_INVALID_HANDLE. */
typedef struct annals_t_event_registration_object *annals_t_event_registration;
#define ANNALS_T_EVENT_REGISTRATION_NULL ((annals_t_event_registration)0)

/* Valid in the callback that is called with it. */
typedef struct annals_t_event_instance_object *annals_t_event_instance;

/* For freed sessions and handles of variables, and numbers that never were one, calls return
 * ANNALS_T_ERR_INVALID_SESSION and ANNALS_T_ERR_INVALID_HANDLE. */
typedef struct annals_t_pvar_session_object *annals_t_pvar_session;
#define ANNALS_T_PVAR_SESSION_NULL ((annals_t_pvar_session)0)
typedef struct annals_t_pvar_handle_object *annals_t_pvar_handle;
#define ANNALS_T_PVAR_HANDLE_NULL ((annals_t_pvar_handle)0)
#define ANNALS_T_PVAR_ALL_HANDLES ((annals_t_pvar_handle)~(uintptr_t)0)
typedef struct annals_t_cvar_handle_object *annals_t_cvar_handle;
#define ANNALS_T_CVAR_HANDLE_NULL ((annals_t_cvar_handle)0)

typedef void (*annals_t_event_cb_function)(annals_t_event_instance event_instance,
                                           annals_t_event_registration event_registration,
                                           annals_t_cb_safety cb_safety, void *user_data);
typedef void (*annals_t_event_free_cb_function)(annals_t_event_registration event_registration,
                                                annals_t_cb_safety cb_safety, void *user_data);
typedef void (*annals_t_event_dropped_cb_function)(annals_t_count count,
                                                   annals_t_event_registration event_registration,
                                                   int source_index, annals_t_cb_safety cb_safety,
                                                   void *user_data);

/* ---- Initialisation ---- */

/* May be called often; `provided` is always ANNALS_T_THREAD_MULTIPLE. */
int annals_t_init_thread(int required, int *provided);
/* To be called as often as annals_t_init_thread(); one more call returns ANNALS_T_ERR_NOT_INITIALIZED. */
int annals_t_finalize(void);

/* ---- Hints ---- */

int annals_t_info_create(annals_t_info *info);
int annals_t_info_free(annals_t_info *info);
int annals_t_info_set(annals_t_info info, const char *key, const char *value);
int annals_t_info_get(annals_t_info info, const char *key, char *value, int *value_len, int *flag);
int annals_t_info_get_nkeys(annals_t_info info, int *nkeys);
int annals_t_info_get_nthkey(annals_t_info info, int n, char *key, int *key_len);

/* ---- Tools: sources ---- */

int annals_t_source_get_num(int *num_sources);
int annals_t_source_get_info(int source_index, char *name, int *name_len, char *desc, int *desc_len,
                             annals_t_source_order *ordering, annals_t_count *ticks_per_second,
                             annals_t_count *max_ticks, annals_t_info *info);
/* Returns ANNALS_T_ERR_NOT_SUPPORTED if the source's clock cannot be read. */
int annals_t_source_get_timestamp(int source_index, annals_t_count *timestamp);

/* ---- Tools: event types ---- */

int annals_t_event_get_num(int *num_events);
/* `enumtype` names the elements: the item with value i is the name of element i. */
int annals_t_event_get_info(int event_index, char *name, int *name_len, int *verbosity,
                            annals_t_datatype array_of_datatypes[],
                            annals_t_aint array_of_displacements[], int *num_elements,
                            annals_t_enum *enumtype, annals_t_info *info, char *desc, int *desc_len,
                            int *bind);
int annals_t_event_get_index(const char *name, int *event_index);

/* ---- Tools: registrations ---- */

/* `obj_handle` points to an annals_t_object if the event type is bound, and is ignored otherwise. */
int annals_t_event_handle_alloc(int event_index, void *obj_handle, annals_t_info info,
                                annals_t_event_registration *event_registration);
int annals_t_event_handle_set_info(annals_t_event_registration event_registration, annals_t_info info);
int annals_t_event_handle_get_info(annals_t_event_registration event_registration,
                                   annals_t_info *info_used);
/* NULL removes the callback of this level. */
int annals_t_event_register_callback(annals_t_event_registration event_registration,
                                     annals_t_cb_safety cb_safety, annals_t_info info, void *user_data,
                                     annals_t_event_cb_function event_cb_function);
/* Returns ANNALS_T_ERR_INVALID if no callback has this level. */
int annals_t_event_callback_set_info(annals_t_event_registration event_registration,
                                     annals_t_cb_safety cb_safety, annals_t_info info);
int annals_t_event_callback_get_info(annals_t_event_registration event_registration,
                                     annals_t_cb_safety cb_safety, annals_t_info *info_used);
/* No callback begins after this call; `free_cb_function` is called once none is running any more. */
int annals_t_event_handle_free(annals_t_event_registration event_registration, void *user_data,
                               annals_t_event_free_cb_function free_cb_function);
/* The handler is called before the next event of the source, with the user data of the callback that fits there. */
int annals_t_event_set_dropped_handler(annals_t_event_registration event_registration,
                                       annals_t_event_dropped_cb_function dropped_cb_function);

/* ---- Tools: instances, in their callbacks ---- */

int annals_t_event_read(annals_t_event_instance event_instance, int element_index, void *buffer);
int annals_t_event_copy(annals_t_event_instance event_instance, void *buffer);
int annals_t_event_get_timestamp(annals_t_event_instance event_instance,
                                 annals_t_count *event_timestamp);
int annals_t_event_get_source(annals_t_event_instance event_instance, int *source_index);

/* ---- Tools: enumerations ---- */

int annals_t_enum_get_info(annals_t_enum enumtype, int *num, char *name, int *name_len);
int annals_t_enum_get_item(annals_t_enum enumtype, int index, int *value, char *name, int *name_len);

/* ---- Tools: control variables ---- */

int annals_t_cvar_get_num(int *num_cvar);
int annals_t_cvar_get_info(int cvar_index, char *name, int *name_len, int *verbosity,
                           annals_t_datatype *datatype, annals_t_enum *enumtype, char *desc, int *desc_len,
                           int *bind, int *scope);
int annals_t_cvar_get_index(const char *name, int *cvar_index);
/* `count` becomes the number of values; for ANNALS_T_CHAR, the bytes of a text with its zero. */
int annals_t_cvar_handle_alloc(int cvar_index, void *obj_handle, annals_t_cvar_handle *handle, int *count);
int annals_t_cvar_handle_free(annals_t_cvar_handle *handle);
int annals_t_cvar_read(annals_t_cvar_handle handle, void *buf);
/* Returns ANNALS_T_ERR_CVAR_SET_NEVER if its scope forbids it, or what its producer returns. */
int annals_t_cvar_write(annals_t_cvar_handle handle, const void *buf);

/* ---- Tools: performance variables ---- */

int annals_t_pvar_get_num(int *num_pvar);
int annals_t_pvar_get_info(int pvar_index, char *name, int *name_len, int *verbosity, int *var_class,
                           annals_t_datatype *datatype, annals_t_enum *enumtype, char *desc, int *desc_len,
                           int *bind, int *readonly, int *continuous, int *atomic);
int annals_t_pvar_get_index(const char *name, int var_class, int *pvar_index);
/* Sessions are independent: what one starts, resets or writes is visible only through its own handles. */
int annals_t_pvar_session_create(annals_t_pvar_session *session);
/* Also frees its handles. */
int annals_t_pvar_session_free(annals_t_pvar_session *session);
int annals_t_pvar_handle_alloc(annals_t_pvar_session session, int pvar_index, void *obj_handle,
                               annals_t_pvar_handle *handle, int *count);
int annals_t_pvar_handle_free(annals_t_pvar_session session, annals_t_pvar_handle *handle);
/* With ANNALS_T_PVAR_ALL_HANDLES, starting and stopping skip continuous variables, and resetting skips
 * read-only ones; reading and writing return ANNALS_T_ERR_INVALID_HANDLE. */
int annals_t_pvar_start(annals_t_pvar_session session, annals_t_pvar_handle handle);
int annals_t_pvar_stop(annals_t_pvar_session session, annals_t_pvar_handle handle);
int annals_t_pvar_read(annals_t_pvar_session session, annals_t_pvar_handle handle, void *buf);
int annals_t_pvar_write(annals_t_pvar_session session, annals_t_pvar_handle handle, const void *buf);
int annals_t_pvar_reset(annals_t_pvar_session session, annals_t_pvar_handle handle);
/* Reads and resets in one step: no part of a sum is missed in between. */
int annals_t_pvar_readreset(annals_t_pvar_session session, annals_t_pvar_handle handle, void *buf);

/* ---- Tools: categories ---- */

int annals_t_category_get_num(int *num_cat);
int annals_t_category_get_info(int cat_index, char *name, int *name_len, char *desc, int *desc_len,
                               int *num_cvars, int *num_pvars, int *num_categories);
int annals_t_category_get_num_events(int cat_index, int *num_events);
int annals_t_category_get_index(const char *name, int *cat_index);
/* At most `len` indexes: those of the members that were added first. */
int annals_t_category_get_cvars(int cat_index, int len, int indices[]);
int annals_t_category_get_pvars(int cat_index, int len, int indices[]);
int annals_t_category_get_events(int cat_index, int len, int indices[]);
int annals_t_category_get_categories(int cat_index, int len, int indices[]);
/* The number is larger after a category was added or grew, and the same otherwise. */
int annals_t_category_changed(int *stamp);

/* ---- The recorder as a tool. It needs no initialisation. ---- */

/* Lists of name patterns (with *, ?, [a-z] and {a,b}), the last one NULL. */
typedef struct annals_t_attach_spec {
    size_t size;                   /* of this structure */
    const char *const *events;     /* event types that are recorded; NULL means all */
    const char *const *pvars;      /* performance variables that are sampled, as metrics; NULL means none */
    const char *const *cvars;      /* control variables, as properties of the process; NULL means all */
    const char *const *sample_at;  /* event types after whose events is sampled; NULL means none */
    uint64_t sample_every_ns;      /* period of sampling in a separate thread; 0 means none */
} annals_t_attach_spec;

typedef struct annals_t_attachment_object *annals_t_attachment;
#define ANNALS_T_ATTACHMENT_NULL ((annals_t_attachment)0)

/* Attaches a recorder of annals.h, which records what is raised: each instance with its elements, on its
 * source; dropped instances, with the reason; registrations and what they are bound to. `spec` NULL means all
 * event types and control variables. What is added later is recorded from then on. Errors: INVALID_HANDLE (no
 * such recorder, or its recording is finished), INVALID (a pattern is not valid), OUT_OF_HANDLES,
 * OUT_OF_SESSIONS, MEMORY; annals_last_error() explains them. */
int annals_t_attach(annals_recorder recorder, const annals_t_attach_spec *spec,
                    annals_t_attachment *attachment);
/* Detaches the recorder. Unreported drops are recorded before. To be called before annals_finish(). */
int annals_t_detach(annals_t_attachment *attachment);
/* Searches for variables that were added since; event types and sources are found without this call. */
int annals_t_attachment_look(annals_t_attachment attachment);
/* Samples the performance variables now. */
int annals_t_attachment_sample(annals_t_attachment attachment);
/* Copies what could not be recorded, and why, a line each; "" if everything could. */
int annals_t_attachment_problems(annals_t_attachment attachment, char *problems, int *problems_len);

/* ---- Producers. They need no initialisation; what they add exists until the process ends. ---- */

typedef const struct annals_t_source_object *annals_t_source;
typedef const struct annals_t_event_type_object *annals_t_event_type;
typedef int64_t (*annals_t_read_clock)(void *data);

/* The source numbers its events within a tick, so that timestamps only grow: for coarse clocks. */
enum { ANNALS_T_SEQUENCED = 1 };

/* `max_ticks` 0 means the largest possible. `read` NULL means that the clock cannot be read; every event is
 * then raised with the time at which it was observed. `buffered` is the number of events that can wait for
 * annals_t_deliver(). */
int annals_t_add_source(const char *name, const char *desc, annals_t_source_order ordering,
                        annals_t_count ticks_per_second, annals_t_count max_ticks,
                        annals_t_read_clock read, void *data, int flags, int buffered,
                        annals_t_source *source);
/* `array_of_displacements` NULL means the layout of a C structure with these elements. */
int annals_t_add_event_type(const char *name, const char *desc, int verbosity, int num_elements,
                            const char *const element_names[],
                            const annals_t_datatype array_of_datatypes[],
                            const annals_t_aint array_of_displacements[], int bind,
                            annals_t_event_type *event);
/* Names an object, for tools that register for all objects. */
int annals_t_add_object(int bind, const void *obj_handle, const char *name);

/* Returns whether there is a registration. */
int annals_t_is_wanted(annals_t_event_type event);
/* Calls all registered callbacks immediately, in this thread. `cb_safety` is what callbacks must be safe for in
 * this context. `observed` NULL means now. `obj_handle` is the object, if the event type is bound. `data`
 * contains the elements, at their displacements. Takes no lock; safe in signal handlers. */
int annals_t_raise(annals_t_event_type event, annals_t_source source, annals_t_cb_safety cb_safety,
                   const annals_t_count *observed, const void *obj_handle, const void *data);
/* Observes an event now and calls back in annals_t_deliver(). */
int annals_t_raise_deferred(annals_t_event_type event, annals_t_source source,
                            const annals_t_count *observed, const void *obj_handle, const void *data);
int annals_t_deliver(annals_t_source source, annals_t_cb_safety cb_safety, int *count);
/* Reports events that the producer dropped before it could raise them. */
int annals_t_report_dropped(annals_t_event_type event, annals_t_source source, const void *obj_handle,
                            annals_t_count count);

/* Names values of an ANNALS_T_INT variable: `num` items, at least one. */
int annals_t_add_enum(const char *name, int num, const int values[], const char *const names[],
                      annals_t_enum *enumtype);

/* ---- Producers: performance variables ---- */

typedef const struct annals_t_pvar_object *annals_t_pvar;

/* What happens to handles. */
enum {
    ANNALS_T_PVAR_ALLOCATED = 0,
    ANNALS_T_PVAR_STARTED = 1,
    ANNALS_T_PVAR_STOPPED = 2,
    ANNALS_T_PVAR_FREED = 3
};

/* A producer's functions; each may be NULL. They are called in the threads, and the signal handlers, of tools.
 * `object` is NULL where the variable is not bound. */
typedef struct annals_t_pvar_functions {
    /* Stores the sum, level or state of an item as the producer has it. Bound variables have this function. */
    void (*read)(void *data, const annals_t_object *object, int item, void *value);
    /* Returns the number of items for an object. */
    int (*count)(void *data, const annals_t_object *object);
    void (*notify)(void *data, int notice, const annals_t_object *object);
} annals_t_pvar_functions;

/* `items` is the number of values, unless a function returns it. `functions` NULL means that the values are
 * stored by the runtime, and 0 at first. A read-only variable is not atomic. */
int annals_t_add_pvar(const char *name, int verbosity, int var_class, annals_t_datatype datatype,
                      annals_t_enum enumtype, const char *desc, int bind, int readonly, int continuous,
                      int atomic, int items, const annals_t_pvar_functions *functions, void *data,
                      annals_t_pvar *pvar);
/* These set, or add to, a value that the runtime stores; and report the current level of one that a function
 * reads, for watermarks. `value` points to one of the variable's datatype. They take no lock: safe in signal
 * handlers. */
int annals_t_pvar_set(annals_t_pvar pvar, int item, const void *value);
int annals_t_pvar_add(annals_t_pvar pvar, int item, const void *value);
int annals_t_pvar_notice(annals_t_pvar pvar, int item, const void *value);

/* ---- Producers: control variables ---- */

typedef void (*annals_t_cvar_read_function)(void *data, const annals_t_object *object, void *values);
/* ANNALS_T_SUCCESS, ANNALS_T_ERR_CVAR_SET_NOT_NOW or ANNALS_T_ERR_CVAR_SET_NEVER. */
typedef int (*annals_t_cvar_write_function)(void *data, const annals_t_object *object, const void *values);

/* `initial` contains the `num_values` initial values. `read` and `write` are both NULL, which means that the
 * runtime stores the values, or both functions of the producer. `desc` of a variable of a group names it. */
int annals_t_add_cvar(const char *name, int verbosity, annals_t_datatype datatype, annals_t_enum enumtype,
                      const char *desc, int bind, int scope, int num_values, const void *initial,
                      annals_t_cvar_read_function read, annals_t_cvar_write_function write, void *data,
                      int *cvar_index);

/* ---- Producers: categories ---- */

enum {
    ANNALS_T_MEMBER_CVAR = 0,
    ANNALS_T_MEMBER_PVAR = 1,
    ANNALS_T_MEMBER_EVENT = 2,
    ANNALS_T_MEMBER_CATEGORY = 3
};

int annals_t_add_category(const char *name, const char *desc, int *cat_index);
/* Returns ANNALS_T_ERR_INVALID if a category would contain itself, directly or through others. */
int annals_t_add_to_category(int cat_index, int member, int index);

#ifdef __cplusplus
}
#endif

#endif
