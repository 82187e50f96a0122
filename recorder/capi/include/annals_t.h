/*
 * Annals' event interface: producers raise events, tools register for them.
 *
 * The model and, but for the prefix, the calls are those of MPI's tool information interface (MPI 4.1
 * section 16.3): a tool for MPI_T ports by renaming MPI_T_ to ANNALS_T_ and annals_t_, and MPI_ of the
 * datatypes likewise. This is the process's own runtime; MPI is not needed, and not looked at.
 *
 * RESULTS. Calls return ANNALS_T_SUCCESS or an error; nothing is fatal. OUT pointers may be NULL where MPI
 * allows it. Texts come by MPI's convention: the length goes in as that of the buffer and comes out as that
 * of the text with its zero; a text that does not fit is cut.
 *
 * THREADS AND SIGNAL HANDLERS. All calls may come from all threads. In signal handlers: raising, reporting
 * drops, freeing a registration, everything with an instance, and reading a source's time. Others give
 * ANNALS_T_ERR_NOT_ACCESSIBLE in callbacks at ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, and in handlers that
 * interrupted such a call.
 */
#ifndef ANNALS_T_H
#define ANNALS_T_H

#include <stddef.h>
#include <stdint.h>

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

/* ---- Handles ---- */

typedef int64_t annals_t_count;  /* MPI_Count */
typedef intptr_t annals_t_aint;  /* MPI_Aint */
typedef uint64_t annals_t_object; /* the handle of an object, as its producer has it */
typedef int annals_t_enum;
#define ANNALS_T_ENUM_NULL (-1)

typedef struct annals_t_info_object *annals_t_info; /* MPI_Info */
#define ANNALS_T_INFO_NULL ((annals_t_info)0)

/* Freed registrations, and numbers that never were one, give ANNALS_T_ERR_INVALID_HANDLE. */
typedef struct annals_t_event_registration_object *annals_t_event_registration;
#define ANNALS_T_EVENT_REGISTRATION_NULL ((annals_t_event_registration)0)

/* Good in the callback that is called with it. */
typedef struct annals_t_event_instance_object *annals_t_event_instance;

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
/* As often as annals_t_init_thread(); once more gives ANNALS_T_ERR_NOT_INITIALIZED. */
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
/* ANNALS_T_ERR_NOT_SUPPORTED: the source's time cannot be asked for. */
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

/* `obj_handle` points to an annals_t_object where the event type is bound, and is ignored where not. */
int annals_t_event_handle_alloc(int event_index, void *obj_handle, annals_t_info info,
                                annals_t_event_registration *event_registration);
int annals_t_event_handle_set_info(annals_t_event_registration event_registration, annals_t_info info);
int annals_t_event_handle_get_info(annals_t_event_registration event_registration,
                                   annals_t_info *info_used);
/* NULL takes away the callback of this level. */
int annals_t_event_register_callback(annals_t_event_registration event_registration,
                                     annals_t_cb_safety cb_safety, annals_t_info info, void *user_data,
                                     annals_t_event_cb_function event_cb_function);
/* ANNALS_T_ERR_INVALID: no callback has this level. */
int annals_t_event_callback_set_info(annals_t_event_registration event_registration,
                                     annals_t_cb_safety cb_safety, annals_t_info info);
int annals_t_event_callback_get_info(annals_t_event_registration event_registration,
                                     annals_t_cb_safety cb_safety, annals_t_info *info_used);
/* No callback begins any more; `free_cb_function` is called when none runs any more. */
int annals_t_event_handle_free(annals_t_event_registration event_registration, void *user_data,
                               annals_t_event_free_cb_function free_cb_function);
/* Called before the next event of the source, with the user data of the callback that fits there. */
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

/* ---- Producers. They need no initialisation; what they add stays while the process lives. ---- */

typedef const struct annals_t_source_object *annals_t_source;
typedef const struct annals_t_event_type_object *annals_t_event_type;
typedef int64_t (*annals_t_read_clock)(void *data);

/* The source numbers its events within a tick, so that timestamps only grow: for coarse clocks. */
enum { ANNALS_T_SEQUENCED = 1 };

/* `max_ticks` 0: the largest possible. `read` NULL: the time cannot be asked for, and every event is raised
 * with the time at which it was observed. `buffered`: how many events can wait for annals_t_deliver(). */
int annals_t_add_source(const char *name, const char *desc, annals_t_source_order ordering,
                        annals_t_count ticks_per_second, annals_t_count max_ticks,
                        annals_t_read_clock read, void *data, int flags, int buffered,
                        annals_t_source *source);
/* `array_of_displacements` NULL: as C lays out a structure of these elements. */
int annals_t_add_event_type(const char *name, const char *desc, int verbosity, int num_elements,
                            const char *const element_names[],
                            const annals_t_datatype array_of_datatypes[],
                            const annals_t_aint array_of_displacements[], int bind,
                            annals_t_event_type *event);
/* Names an object, for tools that register for all there are. */
int annals_t_add_object(int bind, const void *obj_handle, const char *name);

/* Whether anybody is registered. */
int annals_t_is_wanted(annals_t_event_type event);
/* Calls back whoever is registered, here and now; `cb_safety` says what callbacks must be safe for here.
 * `observed` NULL: now. `obj_handle`: the object, where the event type is bound. `data`: the elements, at
 * their displacements. Takes no lock; safe in signal handlers. */
int annals_t_raise(annals_t_event_type event, annals_t_source source, annals_t_cb_safety cb_safety,
                   const annals_t_count *observed, const void *obj_handle, const void *data);
/* Observes an event now and calls back in annals_t_deliver(). */
int annals_t_raise_deferred(annals_t_event_type event, annals_t_source source,
                            const annals_t_count *observed, const void *obj_handle, const void *data);
int annals_t_deliver(annals_t_source source, annals_t_cb_safety cb_safety, int *count);
/* Events that the producer lost before it could raise them. */
int annals_t_report_dropped(annals_t_event_type event, annals_t_source source, const void *obj_handle,
                            annals_t_count count);

#ifdef __cplusplus
}
#endif

#endif
