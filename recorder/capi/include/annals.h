/*
 * Annals: records what a program does, event by event, cheaply and without ever hurting it.
 *
 *     annals_recorder recorder;
 *     annals_region solve;
 *     annals_start(NULL, 0, ANNALS_ENVIRONMENT_WINS, &recorder);
 *     annals_add_region(recorder, "solve", &solve);
 *     annals_enter(solve);
 *     ...
 *     annals_leave(solve);
 *     annals_finish(recorder, NULL);
 *
 * Compile with `pkg-config --cflags --libs annals`; C99 or newer, C++11 or newer.
 *
 * One recorder writes one recording: the events of this process. Events belong to an event type with
 * typed elements, and are raised by a source; the process's own threads are a source from the start.
 * `trace-merge` and `trace-cli` read what is recorded.
 *
 * STATUS. Calls return an annals_status; results come through pointers, which are written to only when
 * the status is ANNALS_OK. annals_last_error() explains in words why a call failed.
 *
 * HANDLES are numbers. For a handle that is stale, of another recorder, or no handle at all, calls
 * return ANNALS_ERROR_HANDLE. Zeros are never a handle. Handles are valid in all threads, until
 * annals_free().
 *
 * THREADS. Every function may be called from any thread at any time.
 *
 * SIGNAL HANDLERS. The functions under RAISING may be called in signal handlers, whatever these
 * interrupt: after a thread's first event they take no lock, allocate nothing, and make no system call
 * but at most one wake-up for each full page of the buffer. Other functions must not be called there,
 * unless their comment allows it; if the handler interrupted another one of them, they return
 * ANNALS_ERROR_REENTERED.
 *
 * FORK. A forked child records nothing (ANNALS_ERROR_FORKED) until it starts its own recorder.
 *
 * END. Return from main, exit() and annals_finish() finish the recording. After _exit(), abort(), exec
 * and kill -9 everything that was recorded is still in its live file. The library stays in the process
 * after dlclose().
 *
 * TEXTS are UTF-8 and end with a zero. Calls keep no pointer to the memory that they were given, except a
 * clock's function and its data.
 */
#ifndef ANNALS_H
#define ANNALS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ---- */

/* The outcome of a call. Later versions may add more: treat unknown ones as errors. */
typedef enum annals_status {
    ANNALS_OK = 0,
    ANNALS_ERROR_NULL = 1,        /* a pointer is NULL that must not be NULL */
    ANNALS_ERROR_HANDLE = 2,      /* a handle is not valid, or of another recorder */
    ANNALS_ERROR_TEXT = 3,        /* a text is not UTF-8 */
    ANNALS_ERROR_SETTING = 4,     /* a setting has no usable value */
    ANNALS_ERROR_DEFINITION = 5,  /* a definition contradicts itself */
    ANNALS_ERROR_CONFLICT = 6,    /* a name is taken by a different definition */
    ANNALS_ERROR_VALUES = 7,      /* values do not fit their event type */
    ANNALS_ERROR_FULL = 8,        /* no room is left for more of these */
    ANNALS_ERROR_FINISHED = 9,    /* the recording is finished */
    ANNALS_ERROR_FORKED = 10,     /* this is a forked child; its parent has the recording */
    ANNALS_ERROR_SYSTEM = 11,     /* an error of the system: a file, or memory */
    ANNALS_ERROR_SNAPSHOT = 12,   /* no snapshot could be written */
    ANNALS_ERROR_REENTERED = 13,  /* inside another call of this thread */
    ANNALS_ERROR_TOO_SMALL = 14,  /* a buffer is too small; what fits is in it */
    ANNALS_ERROR_PANIC = 15       /* an internal error of Annals; it was contained */
} annals_status;

/* Returns the meaning of a status. Never NULL. Safe in signal handlers. */
const char *annals_status_text(int32_t status);

/* Returns why the calling thread's last call failed, in detail; "" at first. Calls under RAISING do not
 * change it, nor does ANNALS_ERROR_REENTERED. Valid until the thread's next call that fails. */
const char *annals_last_error(void);

/* Returns the library's version, as "0.1.0". Safe in signal handlers. */
const char *annals_version(void);

/* ---- Handles ---- */

typedef struct annals_recorder { uint64_t bits; } annals_recorder;
typedef struct annals_region { uint64_t bits; } annals_region;
typedef struct annals_event_type { uint64_t bits; } annals_event_type;
typedef struct annals_source { uint64_t bits; } annals_source;
typedef struct annals_clock { uint64_t bits; } annals_clock;

/* ---- Starting and finishing ---- */

/* A setting: the name of an environment variable, and a value for it. The variables, with their defaults:
 *   ANNALS_DIR           Directory for the recording (`annals-run`)
 *   ANNALS_FILTER        Rules for what is recorded, separated by semicolons, or `@FILE` (none)
 *   ANNALS_SAMPLE        Sample the call paths of all threads, each once in this processor time, as `1ms` (none)
 *   ANNALS_BUFFER        Size of the buffer per process, as `16M` or `256K` (`16M`)
 *   ANNALS_PAGE          Size of one buffer page (1/64 of the buffer, between 4K and 64K)
 *   ANNALS_OVERFLOW      What happens when no page is free: `drop`, `block` or `overwrite` (`drop`; `overwrite` with triggers)
 *   ANNALS_BLOCK_LIMIT   How long an event may wait for a page under `block`, as `100ms` (`100ms`)
 *   ANNALS_TRIGGER       Triggers of the flight recorder, separated by semicolons, as `signal SIGUSR2` (none)
 *   ANNALS_PRE_TRIGGER   How much time before its trigger a snapshot covers, as `2s` (everything that is buffered)
 *   ANNALS_POST_TRIGGER  How long a snapshot waits after its trigger (`0s`)
 *   ANNALS_MAX_BYTES     Maximum size of the recording, as `2G`; later events are dropped (no limit)
 *   ANNALS_FLUSH         Partly filled pages of idle streams are written after this time; `0s` means never (`5s`)
 *   ANNALS_FLUSH_SIGNAL  Signals that cause all pages to be written, separated by commas, as `SIGUSR1,SIGTERM`; those that end programs still do (none)
 *   ANNALS_COMPRESSION   `none`, `later` (when the program has ended), or a zstd level from -7 to 22 (`later` under `trace-cli record`, else 1)
 *   ANNALS_CLOCK         `auto`, `tsc` or `monotonic` (`auto`)
 *   ANNALS_CALIBRATION   Time between calibration points, as `1s` or `250ms` (`1s`)
 *   ANNALS_FORK          Children made by fork whose functions are called: `count` them only, or `follow` and record them (`count`)
 *   ANNALS_OPENMP        OpenMP: `auto` records runtimes that the program is linked to, `on` also those loaded later, `libomp` puts LLVM's in place of GCC's; `off` (`auto`)
 *   ANNALS_LIVE_DIR      Directory for the live file (next to the recording; `/dev/shm` when that is a network file system, or has no room)
 *   ANNALS_RUN           Name of the run that the recording belongs to (the launcher's job id, or made from the start time and process id)
 *   ANNALS_RANK          Rank of this process (the launcher's)
 *   ANNALS_RANKS         Number of ranks in the run (the launcher's)
 * An empty value is ignored. Of two settings with the same name, the later one is used. */
typedef struct annals_setting {
    const char *name;
    const char *value;
} annals_setting;

/* How environment variables with these names are used. */
typedef enum annals_environment {
    ANNALS_ENVIRONMENT_IGNORED = 0, /* they are ignored */
    ANNALS_ENVIRONMENT_WINS = 1,    /* they override the settings of the call */
    ANNALS_ENVIRONMENT_FILLS = 2    /* the settings of the call override them */
} annals_environment;

/* Starts recording, with `count` settings (NULL for none) and an annals_environment.
 * Errors: SETTING, SYSTEM (no file, no memory), FULL (64 recorders that are not freed). */
annals_status annals_start(const annals_setting *settings, size_t count, uint32_t environment,
                           annals_recorder *recorder);

struct annals_statistics;

/* Finishes the recording, and fills `statistics` unless it is NULL. Events raised from now on are counted
 * in the statistics only. Later calls change nothing. Errors: FORKED. */
annals_status annals_finish(annals_recorder recorder, struct annals_statistics *statistics);

/* Finishes the recording if that was not done, waits for running calls in other threads, and frees the
 * recorder. Its handles are stale from now on. Threads that recorded keep its buffer
 * until they end, or until the next annals_start(). */
annals_status annals_free(annals_recorder recorder);

/* Makes this the recorder that annals_global() returns: for code that has no handle. The library that
 * `trace-cli record` preloads records MPI and functions into it, if there is one at their first event;
 * otherwise it starts a recorder then, and makes that global. annals_free() of a recorder that the library
 * uses finishes it, and frees nothing. */
annals_status annals_make_global(annals_recorder recorder);

/* Returns the recorder that was made global and is not freed, or zeros if there is none. Safe in signal
 * handlers. */
annals_recorder annals_global(void);

/* ---- State of a recorder ---- */

/* How a recorder is doing. Set `size` to sizeof(annals_statistics). */
typedef struct annals_statistics {
    size_t size;
    uint64_t raised;              /* events raised, the dropped and suppressed ones included */
    uint64_t dropped;             /* events dropped */
    uint64_t suppressed;          /* events that sampling and rate limits left out */
    uint64_t blocked_ns;          /* how long events waited for a page, nanoseconds, all threads */
    uint64_t snapshots;           /* snapshots taken */
    uint64_t written_bytes;       /* bytes written to the recording */
    uint64_t free_pages;          /* buffer pages that are free */
    uint64_t pages;               /* all buffer pages */
    uint64_t raised_after_finish; /* events raised after the finish, or in a forked child */
    uint64_t misused;             /* events refused: wrong event type, or values that do not fit */
    uint32_t is_finished;         /* 1: the recording is finished (in a forked child always) */
    uint32_t is_kill_safe;        /* 1: the events of a killed process are kept: see annals_not_kill_safe() */
    uint32_t has_storage_failed;  /* 1: writing failed: see annals_storage_failure() */
    uint32_t reserved;
} annals_statistics;

/* Errors: DEFINITION (the size). */
annals_status annals_read_statistics(annals_recorder recorder, annals_statistics *statistics);

/* These copy a text, cut to `capacity` bytes with the zero, and store the length of the whole text without
 * the zero in `length`, unless it is NULL. To get the length only, pass NULL and 0. Errors: TOO_SMALL. */

/* The path of the recording. */
annals_status annals_recording_path(annals_recorder recorder, char *path, size_t capacity,
                                    size_t *length);
/* Why writing failed. Empty if it did not. Events since then are dropped. */
annals_status annals_storage_failure(annals_recorder recorder, char *why, size_t capacity,
                                     size_t *length);
/* Writes why events would be lost if the process were killed. Empty if none would be lost. */
annals_status annals_not_kill_safe(annals_recorder recorder, char *why, size_t capacity,
                                   size_t *length);

/* Switches recording off until annals_resume(): nothing is raised. Calls under RAISING return ANNALS_OK
 * meanwhile. Both are safe in signal handlers. Errors: FINISHED, FORKED. */
annals_status annals_pause(annals_recorder recorder);
annals_status annals_resume(annals_recorder recorder);

/* Changes what is recorded, from now on and in all threads. The rules have the syntax of ANNALS_FILTER. They
 * are added after the existing ones, and so decide first. Calls that are open stay whole: their leaves are recorded
 * if their enters were. Errors: SETTING, FINISHED, FORKED. */
annals_status annals_apply(annals_recorder recorder, const char *rules);

/* Writes what streams that overwrite hold now, as a separate recording, and waits until it is written.
 * Copies its path like annals_recording_path(); pass NULL, 0, NULL if you do not need it.
 * Errors: SNAPSHOT, FINISHED, FORKED, TOO_SMALL. */
annals_status annals_snapshot(annals_recorder recorder, char *path, size_t capacity,
                              size_t *length);

/* Sets the rank of this process, when it becomes known after the start. `rank_count` 0 means not known.
 * Errors: DEFINITION, FULL, FINISHED, FORKED. */
annals_status annals_set_rank(annals_recorder recorder, uint32_t rank, uint32_t rank_count);

/* Adds a property of the process: something that a reader may want to know.
 * Errors: TEXT, FULL, FINISHED, FORKED. */
annals_status annals_add_property(annals_recorder recorder, const char *key, const char *value);

/* ---- Defining ---- */
/* Errors of all of these: NULL, HANDLE, TEXT, DEFINITION, FULL, FINISHED, FORKED. Defining a name again in
 * the same way returns the same handle; in another way, ANNALS_ERROR_CONFLICT (event types). */

/* A region: a named span of code. */
annals_status annals_add_region(annals_recorder recorder, const char *name, annals_region *region);
/* A region with source file and line (NULL and 0 mean unknown) and group (NULL means none). */
annals_status annals_add_region_at(annals_recorder recorder, const char *name, const char *file,
                                   uint32_t line, const char *group, annals_region *region);

/* The type of an element. */
typedef enum annals_type {
    ANNALS_TYPE_ABSENT = 0, /* of values only: this event does not have the optional element */
    ANNALS_TYPE_I32 = 1,
    ANNALS_TYPE_U32 = 2,
    ANNALS_TYPE_I64 = 3,
    ANNALS_TYPE_U64 = 4,
    ANNALS_TYPE_F64 = 5,
    ANNALS_TYPE_STRING = 6, /* text, usually UTF-8; other bytes are stored as they are */
    ANNALS_TYPE_BYTES = 7
} annals_type;

/* The meaning of an event type to analysis. For each role, analyses read elements with fixed names;
 * format/SPEC.md, "Codes" and "Messages and collective operations", lists them. A collective operation
 * has, in its begin and in its end, `communicator`, `operation`, `root`, `place`, `size`, and the bytes of
 * this process: `bytes_sent`, what it contributes, and `bytes_received`, what it receives. A process that
 * receives nothing waits for no other process: from a single sum `bytes`, the merge cannot know that.
 * A `sequence` in sends, receives, begins and ends keeps what a loss leaves matched: count every call, also
 * while recording is off. A receive-start without `request`, and ANNALS_ROLE_WAIT, say at the begin of a call what it
 * waits for; they match nothing. */
typedef enum annals_role {
    ANNALS_ROLE_POINT = 0,
    ANNALS_ROLE_ENTER = 1,
    ANNALS_ROLE_LEAVE = 2,
    ANNALS_ROLE_METRIC = 3,
    ANNALS_ROLE_SEND = 4,
    ANNALS_ROLE_RECEIVE = 5,
    ANNALS_ROLE_BEGIN = 6,
    ANNALS_ROLE_END = 7,
    ANNALS_ROLE_COLLECTIVE = 8,
    ANNALS_ROLE_RECEIVE_START = 9,
    ANNALS_ROLE_SEND_END = 10,
    ANNALS_ROLE_CANCEL = 11,
    ANNALS_ROLE_COLLECTIVE_BEGIN = 12,
    ANNALS_ROLE_COLLECTIVE_END = 13,
    ANNALS_ROLE_WAIT = 14,
    ANNALS_ROLE_ACQUIRE = 15,
    ANNALS_ROLE_RELEASE = 16,
    ANNALS_ROLE_SAMPLE = 17
} annals_role;

/* The readers for which an event type is meant. */
typedef enum annals_verbosity {
    ANNALS_VERBOSITY_USER_BASIC = 0,
    ANNALS_VERBOSITY_USER_DETAIL = 1,
    ANNALS_VERBOSITY_USER_ALL = 2,
    ANNALS_VERBOSITY_TUNER_BASIC = 3,
    ANNALS_VERBOSITY_TUNER_DETAIL = 4,
    ANNALS_VERBOSITY_TUNER_ALL = 5,
    ANNALS_VERBOSITY_DEVELOPER_BASIC = 6,
    ANNALS_VERBOSITY_DEVELOPER_DETAIL = 7,
    ANNALS_VERBOSITY_DEVELOPER_ALL = 8
} annals_verbosity;

/* What an integer element refers to. */
typedef enum annals_reference {
    ANNALS_REFERENCE_NONE = 0,
    ANNALS_REFERENCE_STRING = 1,
    ANNALS_REFERENCE_REGION = 2, /* the value is annals_region_value() */
    ANNALS_REFERENCE_LOCATION = 3,
    ANNALS_REFERENCE_SOURCE = 4,
    ANNALS_REFERENCE_EVENT_TYPE = 5,
    ANNALS_REFERENCE_OBJECT = 6,
    ANNALS_REFERENCE_RANK = 7,
    ANNALS_REFERENCE_CALL_PATH = 8 /* of samples, which only trace-cli record --sample defines */
} annals_reference;

/* One element of an event type. */
typedef struct annals_element {
    const char *name;
    const char *unit;     /* such as "bytes"; NULL means none */
    uint32_t type;        /* an annals_type */
    uint32_t reference;   /* an annals_reference; such elements are integers and have no unit */
    uint32_t is_optional; /* 1: values may be absent */
    uint32_t reserved;    /* 0 */
} annals_element;

/* An event type. Set `size` to sizeof(annals_event_type_spec), and what you do not use to zeros. */
typedef struct annals_event_type_spec {
    size_t size;
    const char *name;
    const char *description;  /* NULL means none */
    uint32_t verbosity;       /* an annals_verbosity */
    uint32_t role;            /* an annals_role */
    const char *key;          /* the element that ties begin to end; NULL means none */
    const annals_element *elements;
    size_t element_count;     /* at most 256 */
} annals_event_type_spec;

annals_status annals_add_event_type(annals_recorder recorder, const annals_event_type_spec *spec,
                                    annals_event_type *event_type);

/* A metric: an event type with the role METRIC and one element `value`, of a number's type. Raise it with
 * annals_metric_i64() and the like. `unit` NULL means none. */
annals_status annals_add_metric(annals_recorder recorder, const char *name, const char *unit,
                                uint32_t type, annals_event_type *metric);

/* Returns the ticks of a clock now. Runs on the threads that raise events, in their signal handlers, and on
 * a thread of Annals, until the process ends, with the same data. It must not throw, longjmp or cancel
 * the thread. Calls that are not safe in signal handlers return ANNALS_ERROR_REENTERED in it. */
typedef uint64_t (*annals_read_clock)(void *data);

/* A clock. Set `size` to sizeof(annals_clock_spec). */
typedef struct annals_clock_spec {
    size_t size;
    const char *name;
    uint64_t ticks_per_second; /* at least 1 */
    uint64_t max_ticks;        /* the largest tick before it starts again at 0; 0 means 2^64 - 1 */
    annals_read_clock read;    /* NULL: known only from its events, see annals_raise_at() */
    void *data;                /* for `read` */
    uint32_t rate_error_ppb;   /* bound of the rate's error, parts per 10^9; 0 means 200 000 */
    uint32_t reserved;         /* 0 */
} annals_clock_spec;

annals_status annals_add_clock(annals_recorder recorder, const annals_clock_spec *spec,
                               annals_clock *clock);

/* Ties a clock that is known only from its events to the host's reference clock, at this moment: `read` reads
 * it, several times in a row, on this thread and only within this call. Two such moments, some time apart,
 * bound the error of the clock's times, which its events alone cannot. Errors: DEFINITION for a clock that
 * Annals reads itself. */
annals_status annals_calibrate(annals_recorder recorder, annals_clock clock, annals_read_clock read,
                               void *data);

/* What a source promises. */
typedef enum annals_ordering {
    ANNALS_ORDERED = 0,   /* its events are in chronological order in each thread */
    ANNALS_UNORDERED = 1  /* nothing */
} annals_ordering;

/* What happens to an event that finds no free buffer page. */
typedef enum annals_overflow {
    ANNALS_OVERFLOW_DEFAULT = 0,  /* the setting ANNALS_OVERFLOW */
    ANNALS_OVERFLOW_DROP = 1,     /* it is dropped, and counted */
    ANNALS_OVERFLOW_BLOCK = 2,    /* it waits, for ANNALS_BLOCK_LIMIT at most */
    ANNALS_OVERFLOW_OVERWRITE = 3 /* the oldest are dropped instead: the flight recorder */
} annals_overflow;

/* A source of events. Set `size` to sizeof(annals_source_spec), and what you do not use to zeros. */
typedef struct annals_source_spec {
    size_t size;
    const char *name;
    const char *description; /* NULL means none */
    uint32_t ordering;       /* an annals_ordering */
    uint32_t overflow;       /* an annals_overflow */
    annals_clock clock;      /* zeros mean the recorder's */
    uint32_t own_location;   /* 1: what each thread raises for it is at a separate location, not the thread's */
    uint32_t reserved;       /* 0 */
} annals_source_spec;

annals_status annals_add_source(annals_recorder recorder, const annals_source_spec *spec,
                                annals_source *source);

/* The source that exists from the start: the process's own threads, on the recorder's clock. */
annals_status annals_threads(annals_recorder recorder, annals_source *source);

/* ---- RAISING ---- */
/* All of these are safe in signal handlers. ANNALS_OK means that the event is recorded, or counted as dropped
 * or suppressed, or switched off by the user. Otherwise it is not recorded, and it is counted in the
 * statistics of its recorder, if that can be found. Errors: HANDLE, VALUES, NULL, FINISHED, FORKED. */

/* Enters and leaves a region, in the process's own source. */
annals_status annals_enter(annals_region region);
annals_status annals_leave(annals_region region);

/* The value of an element: made by the functions below, or filled in. Zeros mean absent. */
typedef struct annals_value {
    uint32_t type;   /* an annals_type */
    uint32_t length; /* of strings and bytes, bytes */
    union {
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        double f64;
        const void *bytes; /* of strings and bytes; copied by the call */
    } as;
} annals_value;

/* Raises an event of the process's own source, now: with one value for each element, in order. */
annals_status annals_raise(annals_event_type event_type, const annals_value *values, size_t count);

/* Raises an event of a source, now by the source's clock. */
annals_status annals_raise_on(annals_source source, annals_event_type event_type,
                              const annals_value *values, size_t count);

/* Raises an event of a source that happened at this tick of the source's clock. */
annals_status annals_raise_at(annals_source source, uint64_t tick, annals_event_type event_type,
                              const annals_value *values, size_t count);

/* Counts events that a source reports as dropped by itself: they are recorded as raised and dropped, as an
 * estimate. */
annals_status annals_report_dropped(annals_source source, annals_event_type event_type,
                                    uint64_t count);

/* Counts an event that no callback was registered for at the safety level of its context. */
annals_status annals_report_no_callback(annals_source source, annals_event_type event_type);

/* Returns the processor's counter. The recorder's clock reads it if it is invariant (not 0). */
uint64_t annals_tsc(void);
int32_t annals_tsc_is_invariant(void);

/* ---- Values ---- */

static inline annals_value annals_absent(void)
{
    annals_value value;
    value.type = ANNALS_TYPE_ABSENT;
    value.length = 0;
    value.as.u64 = 0;
    return value;
}

static inline annals_value annals_i32(int32_t number)
{
    annals_value value = annals_absent();
    value.type = ANNALS_TYPE_I32;
    value.as.i64 = number; /* the whole word, so that the call reads it as it was stored */
    return value;
}

static inline annals_value annals_u32(uint32_t number)
{
    annals_value value = annals_absent();
    value.type = ANNALS_TYPE_U32;
    value.as.u64 = number;
    return value;
}

static inline annals_value annals_i64(int64_t number)
{
    annals_value value = annals_absent();
    value.type = ANNALS_TYPE_I64;
    value.as.i64 = number;
    return value;
}

static inline annals_value annals_u64(uint64_t number)
{
    annals_value value = annals_absent();
    value.type = ANNALS_TYPE_U64;
    value.as.u64 = number;
    return value;
}

static inline annals_value annals_f64(double number)
{
    annals_value value = annals_absent();
    value.type = ANNALS_TYPE_F64;
    value.as.f64 = number;
    return value;
}

/* `length` bytes of text. An event with more than 2^32 - 1 bytes is dropped as too big in any case. */
static inline annals_value annals_text(const char *text, size_t length)
{
    annals_value value = annals_absent();
    value.type = ANNALS_TYPE_STRING;
    value.length = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
    value.as.bytes = text;
    return value;
}

/* A text that ends with a zero. NULL means absent. */
static inline annals_value annals_string(const char *text)
{
    return text == NULL ? annals_absent() : annals_text(text, strlen(text));
}

static inline annals_value annals_bytes(const void *bytes, size_t length)
{
    annals_value value = annals_text((const char *)bytes, length);
    value.type = ANNALS_TYPE_BYTES;
    return value;
}

/* For an element of type U32 that refers to a region. */
static inline annals_value annals_region_value(annals_region region)
{
    return annals_u32((uint32_t)region.bits & 0x0fffffffu);
}

/* ---- Short for frequent events ---- */

/* Raises an event without elements. */
static inline annals_status annals_point(annals_event_type event_type)
{
    return annals_raise(event_type, NULL, 0);
}

/* Records the value of a metric of this type. */
static inline annals_status annals_metric_i32(annals_event_type metric, int32_t number)
{
    annals_value value = annals_i32(number);
    return annals_raise(metric, &value, 1);
}

static inline annals_status annals_metric_u32(annals_event_type metric, uint32_t number)
{
    annals_value value = annals_u32(number);
    return annals_raise(metric, &value, 1);
}

static inline annals_status annals_metric_i64(annals_event_type metric, int64_t number)
{
    annals_value value = annals_i64(number);
    return annals_raise(metric, &value, 1);
}

static inline annals_status annals_metric_u64(annals_event_type metric, uint64_t number)
{
    annals_value value = annals_u64(number);
    return annals_raise(metric, &value, 1);
}

static inline annals_status annals_metric_f64(annals_event_type metric, double number)
{
    annals_value value = annals_f64(number);
    return annals_raise(metric, &value, 1);
}

#ifdef __cplusplus
}
#endif

#endif
