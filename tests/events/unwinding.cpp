/*
 * Functions of a program that the event interface calls leave it: by an exception, by longjmp, by the end of their thread, or because
 * it is cancelled. For each kind of function and each way: what leaves arrives, and later calls find everything as if the function
 * had returned. Prints the kinds and ways. With an argument, calls from further inside are tried, too: what was left is below them
 * on the stack.
 */
#include "check.h"

#include <atomic>
#include <csetjmp>
#include <initializer_list>
#include <pthread.h>
#include <unistd.h>

enum Way { RETURN, THROW, JUMP, EXIT, CANCEL };
static const char *const way_names[] = {"return", "throw", "longjmp", "exit", "cancel"};

static Way way;
static jmp_buf after;
static bool is_armed, is_time_asked_for;
static std::atomic<int> freed;
static int calls, handled;
static annals_t_source source;
static annals_t_event_type event;
static annals_t_pvar pvar;
static int cvar;

/* Leaves the function that calls this, once. */
static void leave() {
    if (!is_armed)
        return;
    is_armed = false;
    switch (way) {
    case RETURN:
        break;
    case THROW:
        throw 42;
    case JUMP:
        longjmp(after, 1);
    case EXIT:
        pthread_exit(NULL);
    case CANCEL:
        pthread_cancel(pthread_self());
        pthread_testcancel();
    }
}

static int64_t read_clock(void *) {
    static int64_t now;
    if (is_time_asked_for)
        leave();
    return ++now;
}
static void on_event(annals_t_event_instance, annals_t_event_registration, annals_t_cb_safety, void *) {
    calls++;
    leave();
}
static void on_second(annals_t_event_instance, annals_t_event_registration, annals_t_cb_safety, void *) {}
static void on_drop(annals_t_count count, annals_t_event_registration, int, annals_t_cb_safety, void *) {
    handled += (int)count;
    leave();
}
static void on_free(annals_t_event_registration, annals_t_cb_safety, void *) {
    freed++;
    leave();
}
static void read_pvar(void *, const annals_t_object *, int, void *value) {
    leave();
    *(unsigned *)value = 7;
}
static int count_pvar(void *, const annals_t_object *) {
    leave();
    return 1;
}
static void read_cvar(void *, const annals_t_object *, void *values) {
    leave();
    *(int *)values = 3;
}
static int write_cvar(void *, const annals_t_object *, const void *) {
    leave();
    return ANNALS_T_SUCCESS;
}

static annals_t_event_registration registration;
static annals_t_pvar_session session;

static void make_registration() {
    OK(annals_t_event_handle_alloc(0, NULL, ANNALS_T_INFO_NULL, &registration));
    OK(annals_t_event_register_callback(registration, ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, ANNALS_T_INFO_NULL,
                                        NULL, on_event));
    OK(annals_t_event_set_dropped_handler(registration, on_drop));
    calls = handled = 0;
    freed = 0;
}

static void make_and_free() {
    annals_t_event_registration other;
    OK(annals_t_event_handle_alloc(0, NULL, ANNALS_T_INFO_NULL, &other));
    OK(annals_t_event_handle_free(other, NULL, NULL));
}

/* The kinds of functions, by what calls them. */
static void raise_now() {
    OK(annals_t_raise(event, source, ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, NULL, NULL, NULL));
}
static void deliver() {
    for (int n = 0; n < 3; n++)
        OK(annals_t_raise_deferred(event, source, NULL, NULL, NULL));
    OK(annals_t_deliver(source, ANNALS_T_CB_REQUIRE_NONE, NULL));
}
static void report() {
    OK(annals_t_report_dropped(event, source, NULL, 5));
    raise_now();
}
static void free_registration() {
    OK(annals_t_event_handle_free(registration, NULL, on_free));
}
static void ask_time() {
    annals_t_count now;
    is_time_asked_for = true;
    OK(annals_t_source_get_timestamp(0, &now));
}
static void ask_pvar() {
    annals_t_pvar_handle handle;
    int count;
    unsigned value;
    OK(annals_t_pvar_handle_alloc(session, 0, NULL, &handle, &count));
    OK(annals_t_pvar_read(session, handle, &value));
    CHECK(count == 1 && value == 7);
    OK(annals_t_pvar_handle_free(session, &handle));
}
static void ask_cvar() {
    annals_t_cvar_handle handle;
    int count, value = 0;
    OK(annals_t_cvar_handle_alloc(cvar, NULL, &handle, &count));
    OK(annals_t_cvar_read(handle, &value));
    CHECK(value == 3);
    OK(annals_t_cvar_write(handle, &value));
    OK(annals_t_cvar_handle_free(&handle));
}

struct Kind {
    const char *name;
    void (*call)();
};
static const Kind kinds[] = {
    {"event", raise_now},          {"deferred", deliver}, {"dropped", report},   {"free", free_registration},
    {"clock", ask_time},           {"pvar", ask_pvar},    {"cvar", ask_cvar},
};

/* Makes the call, and takes what leaves it. */
static void take(const Kind &kind) {
    is_armed = true;
    if (way == THROW) {
        int thrown = 0;
        try {
            kind.call();
        } catch (int what) {
            thrown = what;
        }
        CHECK(thrown == 42);
    } else if (way == JUMP) {
        if (setjmp(after) == 0) {
            kind.call();
            CHECK(!"it jumps");
        }
    } else {
        kind.call();
    }
}
static void *thread(void *kind) {
    take(*(const Kind *)kind);
    CHECK(way == RETURN);
    return NULL;
}

/* Calls something below what was left. */
static void __attribute__((noinline)) further_inside(void (*call)()) {
    volatile char room[20000];
    room[0] = room[sizeof room - 1] = 0;
    call();
    room[1] = room[0];
}

static void try_cell(const Kind &kind, bool is_further_inside) {
    make_registration();
    if (way == EXIT || way == CANCEL) {
        pthread_t id;
        OK(pthread_create(&id, NULL, thread, (void *)&kind));
        OK(pthread_join(id, NULL));
    } else {
        take(kind);
    }
    CHECK(!is_armed);
    is_time_asked_for = false;
    /* No callback runs: what allocates is allowed. */
    if (is_further_inside)
        further_inside(make_and_free);
    else
        make_and_free();
    if (!strcmp(kind.name, "free")) {
        CHECK(freed == 1);
        make_registration();
    }
    /* What waited is delivered, but what was being delivered. */
    int count = -1, before = calls;
    OK(annals_t_deliver(source, ANNALS_T_CB_REQUIRE_NONE, &count));
    CHECK(count == (!strcmp(kind.name, "deferred") && way != RETURN ? 2 : 0));
    if (!strcmp(kind.name, "dropped"))
        CHECK(handled == 5);
    /* The next events arrive, once each, also inside other callbacks. */
    before = calls;
    raise_now();
    raise_now();
    CHECK(calls == before + 2);
    /* No thread is inside: the free callback runs in the call. */
    before = freed;
    OK(annals_t_event_handle_free(registration, NULL, on_free));
    CHECK(freed == before + 1);
    printf("%s %s\n", kind.name, way_names[way]);
}

/* A callback that is left inside another one, which returns. */
static void on_outer(annals_t_event_instance, annals_t_event_registration, annals_t_cb_safety, void *) {
    static int depth;
    if (depth++ == 0) {
        try {
            is_armed = true;
            raise_now();
        } catch (int) {
        }
        depth = 0;
    }
    leave();
}
static void try_nested() {
    way = THROW;
    OK(annals_t_event_handle_alloc(0, NULL, ANNALS_T_INFO_NULL, &registration));
    OK(annals_t_event_register_callback(registration, ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, ANNALS_T_INFO_NULL,
                                        NULL, on_outer));
    freed = 0;
    raise_now();
    OK(annals_t_event_handle_free(registration, NULL, on_free));
    CHECK(freed == 1);
    puts("nested throw");
}

int main(int argc, char **) {
    int is_counted = 0;
    OK(annals_t_init_thread(ANNALS_T_THREAD_MULTIPLE, NULL));
    OK(annals_t_add_source("a source", NULL, ANNALS_T_SOURCE_UNORDERED, 1000000000, INT64_MAX, read_clock, NULL, 0,
                           16, &source));
    OK(annals_t_add_event_type("an event", NULL, ANNALS_T_VERBOSITY_USER_BASIC, 0, NULL, NULL, NULL,
                               ANNALS_T_BIND_NO_OBJECT, &event));
    annals_t_pvar_functions functions = {read_pvar, count_pvar, NULL};
    OK(annals_t_add_pvar("a variable", ANNALS_T_VERBOSITY_USER_BASIC, ANNALS_T_PVAR_CLASS_LEVEL, ANNALS_T_UNSIGNED,
                         ANNALS_T_ENUM_NULL, NULL, ANNALS_T_BIND_NO_OBJECT, 0, 1, 1, 1, &functions, NULL, &pvar));
    OK(annals_t_add_cvar("a setting", ANNALS_T_VERBOSITY_USER_BASIC, ANNALS_T_INT, ANNALS_T_ENUM_NULL, NULL,
                         ANNALS_T_BIND_NO_OBJECT, ANNALS_T_SCOPE_LOCAL, 1, &is_counted, read_cvar, write_cvar, NULL,
                         &cvar));
    OK(annals_t_pvar_session_create(&session));
    /* Another one gets all events, too. */
    annals_t_event_registration second;
    OK(annals_t_event_handle_alloc(0, NULL, ANNALS_T_INFO_NULL, &second));
    OK(annals_t_event_register_callback(second, ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, ANNALS_T_INFO_NULL, NULL,
                                        on_second));
    for (const Kind &kind : kinds)
        for (Way each : {RETURN, THROW, JUMP, EXIT, CANCEL}) {
            way = each;
            try_cell(kind, false);
            if (argc > 1 && kind.call == raise_now)
                try_cell(kind, true);
        }
    try_nested();
    return 0;
}
