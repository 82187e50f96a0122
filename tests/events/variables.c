/*
 * Variables, enumerations and categories from C, compared with the standard's text (tests/events/conformance.tsv names
 * these functions). Prints the name of each test that holds.
 */
#include "check.h"

static const char TEXT[] = "abc";

/* Adds a variable whose values are kept by the library. */
static annals_t_pvar kept(const char *name, int class, annals_t_datatype type) {
    annals_t_pvar pvar = NULL;
    OK(annals_t_add_pvar(name, ANNALS_T_VERBOSITY_USER_BASIC, class, type, ANNALS_T_ENUM_NULL, NULL,
                         ANNALS_T_BIND_NO_OBJECT, 0, 0, 1, 1, NULL, NULL, &pvar));
    return pvar;
}

static annals_t_pvar_session session(void) {
    annals_t_pvar_session made = ANNALS_T_PVAR_SESSION_NULL;
    OK(annals_t_pvar_session_create(&made));
    CHECK(made != ANNALS_T_PVAR_SESSION_NULL);
    return made;
}

static annals_t_pvar_handle handle(annals_t_pvar_session in, const char *name, int class) {
    annals_t_pvar_handle made = ANNALS_T_PVAR_HANDLE_NULL;
    int index = -1, count = -1;
    OK(annals_t_pvar_get_index(name, class, &index));
    OK(annals_t_pvar_handle_alloc(in, index, NULL, &made, &count));
    CHECK(made != ANNALS_T_PVAR_HANDLE_NULL && made != ANNALS_T_PVAR_ALL_HANDLES && count == 1);
    return made;
}

static uint64_t value_of(annals_t_pvar_session in, annals_t_pvar_handle of) {
    uint64_t value = 999;
    OK(annals_t_pvar_read(in, of, &value));
    return value;
}

static void add(annals_t_pvar pvar, uint64_t more) { OK(annals_t_pvar_add(pvar, 0, &more)); }
static void set(annals_t_pvar pvar, uint64_t value) { OK(annals_t_pvar_set(pvar, 0, &value)); }

static void enumerations_have_names_of_their_own_and_at_least_one_item(void) {
    static const int values[] = {3, 7};
    static const char *const names[] = {"idle", "busy"}, *const same[] = {"idle", "idle"};
    annals_t_enum states = ANNALS_T_ENUM_NULL, other;
    char name[16];
    int num = 0, value = 0, length = sizeof name;
    OK(annals_t_add_enum("states", 2, values, names, &states));
    CHECK(annals_t_add_enum("states", 2, values, names, &other) == ANNALS_T_ERR_INVALID_NAME);
    CHECK(annals_t_add_enum("", 2, values, names, &other) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_enum("none", 0, values, names, &other) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_enum("minus", -1, values, names, &other) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_enum("same", 2, values, same, &other) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_enum("null", 2, NULL, NULL, &other) == ANNALS_T_ERR_INVALID);
    OK(annals_t_enum_get_info(states, &num, name, &length));
    CHECK(num == 2 && !strcmp(name, "states") && length == 7);
    length = sizeof name;
    OK(annals_t_enum_get_item(states, 1, &value, name, &length));
    CHECK(value == 7 && !strcmp(name, "busy"));
    CHECK(annals_t_enum_get_item(states, 2, &value, NULL, NULL) == ANNALS_T_ERR_INVALID_ITEM);
    CHECK(annals_t_enum_get_info(99, &num, NULL, NULL) != ANNALS_T_SUCCESS);
}

static int setting = 42, answer, data_here;

static void get_setting(void *data, const annals_t_object *object, void *values) {
    CHECK(data == &data_here && object == NULL);
    *(int32_t *)values = setting;
}

static int set_setting(void *data, const annals_t_object *object, const void *values) {
    CHECK(data == &data_here && object == NULL);
    if (answer == ANNALS_T_SUCCESS)
        setting = *(const int32_t *)values;
    return answer;
}

static void control_variables_are_read_and_set_as_their_scope_allows(void) {
    static const char *const names[] = {"constant", "readonly", "local", "group", "group eq", "all", "all eq"};
    const int32_t four = 4, five = 5;
    int num = -1, index, count, scope, bind, verbosity;
    annals_t_datatype type;
    annals_t_enum names_of;
    annals_t_cvar_handle handle = ANNALS_T_CVAR_HANDLE_NULL, wrong[3];
    for (int i = 0; i < 7; i++) {
        OK(annals_t_add_cvar(names[i], ANNALS_T_VERBOSITY_DEV_ALL, ANNALS_T_INT, ANNALS_T_ENUM_NULL, "of all",
                             ANNALS_T_BIND_NO_OBJECT, i, 1, &four, NULL, NULL, NULL, &index));
        CHECK(index == i);
    }
    for (int i = 0; i < 7; i++) {
        char name[16], desc[16];
        int name_len = sizeof name, desc_len = sizeof desc;
        int32_t value = 0;
        const int is_fixed = i == ANNALS_T_SCOPE_CONSTANT || i == ANNALS_T_SCOPE_READONLY;
        OK(annals_t_cvar_get_info(i, name, &name_len, &verbosity, &type, &names_of, desc, &desc_len, &bind,
                                  &scope));
        CHECK(!strcmp(name, names[i]) && !strcmp(desc, "of all") && desc_len == 7);
        CHECK(verbosity == ANNALS_T_VERBOSITY_DEV_ALL && type == ANNALS_T_INT && scope == i);
        CHECK(names_of == ANNALS_T_ENUM_NULL && bind == ANNALS_T_BIND_NO_OBJECT);
        OK(annals_t_cvar_get_index(names[i], &index));
        CHECK(index == i);
        OK(annals_t_cvar_handle_alloc(i, NULL, &handle, &count));
        CHECK(count == 1 && handle != ANNALS_T_CVAR_HANDLE_NULL);
        CHECK(annals_t_cvar_write(handle, &five) == (is_fixed ? ANNALS_T_ERR_CVAR_SET_NEVER : 0));
        CHECK(annals_t_cvar_write(handle, NULL) == ANNALS_T_ERR_INVALID);
        CHECK(annals_t_cvar_read(handle, NULL) == ANNALS_T_ERR_INVALID);
        OK(annals_t_cvar_read(handle, &value));
        CHECK(value == (is_fixed ? 4 : 5));
        wrong[0] = handle;
        OK(annals_t_cvar_handle_free(&handle));
        CHECK(handle == ANNALS_T_CVAR_HANDLE_NULL);
        wrong[1] = handle;
        wrong[2] = (annals_t_cvar_handle)~(uintptr_t)0;
        for (int j = 0; j < 3; j++) {
            annals_t_cvar_handle freed = wrong[j];
            CHECK(annals_t_cvar_read(freed, &value) == ANNALS_T_ERR_INVALID_HANDLE);
            CHECK(annals_t_cvar_write(freed, &value) == ANNALS_T_ERR_INVALID_HANDLE);
            CHECK(annals_t_cvar_handle_free(&freed) == ANNALS_T_ERR_INVALID_HANDLE && freed == wrong[j]);
        }
    }
    OK(annals_t_cvar_get_num(&num));
    CHECK(num == 7);
    CHECK(annals_t_cvar_get_index("other", &index) == ANNALS_T_ERR_INVALID_NAME);
    CHECK(annals_t_cvar_get_index(NULL, &index) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_cvar_handle_alloc(7, NULL, &handle, &count) == ANNALS_T_ERR_INVALID_INDEX);
    CHECK(annals_t_cvar_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
          ANNALS_T_ERR_INVALID_INDEX);
    /* The name is taken, there is none, no group is named, no value is there, half of the functions is. */
    CHECK(annals_t_add_cvar("local", 0, ANNALS_T_INT, ANNALS_T_ENUM_NULL, NULL, 0, 2, 1, &four, NULL, NULL,
                            NULL, &index) == ANNALS_T_ERR_INVALID_NAME);
    CHECK(annals_t_add_cvar("", 0, ANNALS_T_INT, ANNALS_T_ENUM_NULL, NULL, 0, 2, 1, &four, NULL, NULL, NULL,
                            &index) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_cvar("g", 0, ANNALS_T_INT, ANNALS_T_ENUM_NULL, NULL, 0, ANNALS_T_SCOPE_GROUP, 1, &four,
                            NULL, NULL, NULL, &index) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_cvar("v", 0, ANNALS_T_INT, ANNALS_T_ENUM_NULL, NULL, 0, 2, 0, &four, NULL, NULL, NULL,
                            &index) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_cvar("h", 0, ANNALS_T_INT, ANNALS_T_ENUM_NULL, NULL, 0, 2, 1, &four, get_setting, NULL,
                            NULL, &index) == ANNALS_T_ERR_INVALID);
}

static void a_producer_may_refuse_a_setting_for_now(void) {
    annals_t_cvar_handle handle;
    const int32_t initial = 0, wanted = 17;
    int32_t value = 0;
    int index, count;
    OK(annals_t_add_cvar("busy", 0, ANNALS_T_INT, ANNALS_T_ENUM_NULL, NULL, 0, ANNALS_T_SCOPE_LOCAL, 1,
                         &initial, get_setting, set_setting, &data_here, &index));
    OK(annals_t_cvar_handle_alloc(index, NULL, &handle, &count));
    OK(annals_t_cvar_read(handle, &value));
    CHECK(value == 42);
    answer = ANNALS_T_ERR_CVAR_SET_NOT_NOW;
    CHECK(annals_t_cvar_write(handle, &wanted) == ANNALS_T_ERR_CVAR_SET_NOT_NOW && setting == 42);
    answer = ANNALS_T_ERR_CVAR_SET_NEVER;
    CHECK(annals_t_cvar_write(handle, &wanted) == ANNALS_T_ERR_CVAR_SET_NEVER && setting == 42);
    answer = ANNALS_T_SUCCESS;
    OK(annals_t_cvar_write(handle, &wanted));
    CHECK(setting == 17);
    OK(annals_t_cvar_handle_free(&handle));
}

static void texts_of_variables_end_with_a_zero_that_counts(void) {
    annals_t_cvar_handle handle;
    char text[8] = "xxxxxxx";
    int index, count = 0;
    OK(annals_t_add_cvar("path", 0, ANNALS_T_CHAR, ANNALS_T_ENUM_NULL, NULL, 0, ANNALS_T_SCOPE_LOCAL, sizeof TEXT,
                         TEXT, NULL, NULL, NULL, &index));
    OK(annals_t_cvar_handle_alloc(index, NULL, &handle, &count));
    CHECK(count == 4);
    OK(annals_t_cvar_read(handle, text));
    CHECK(!memcmp(text, "abc\0xxx", 8));
    OK(annals_t_cvar_write(handle, "xy\0\0"));
    OK(annals_t_cvar_read(handle, text));
    CHECK(!strcmp(text, "xy"));
    OK(annals_t_cvar_handle_free(&handle));
}

static void performance_variables_keep_their_index_and_what_they_say(void) {
    /* By class: which of the seven datatypes. */
    static const char *const allowed[] = {"1000000", "0111001", "0111001", "0000001", "0111001",
                                          "0111001", "0111000", "0111001", "0111001", "1111111"};
    annals_t_pvar pvar;
    int num = -1, index = -1, class = -1, readonly = -1, continuous = -1, atomic = -1;
    for (int c = 0; c < 10; c++) {
        int is_taken = 0;
        for (int type = 0; type < 7; type++) {
            int expected = is_taken ? ANNALS_T_ERR_INVALID_NAME : ANNALS_T_SUCCESS;
            if (allowed[c][type] == '0')
                expected = ANNALS_T_ERR_INVALID;
            else
                is_taken = 1;
            CHECK(annals_t_add_pvar("same name", 0, c, type, ANNALS_T_ENUM_NULL, "all", 0, 0, 0, 1, 1, NULL,
                                    NULL, &pvar) == expected);
        }
        OK(annals_t_pvar_get_index("same name", c, &index));
        CHECK(index == c);
        char name[16], desc[16];
        int name_len = sizeof name, desc_len = sizeof desc;
        OK(annals_t_pvar_get_info(c, name, &name_len, NULL, &class, NULL, NULL, desc, &desc_len, NULL, &readonly,
                                  &continuous, &atomic));
        CHECK(!strcmp(name, "same name") && !strcmp(desc, "all") && class == c);
        CHECK(readonly == 0 && continuous == 0 && atomic == 1);
    }
    OK(annals_t_pvar_get_num(&num));
    CHECK(num == 10);
    CHECK(annals_t_pvar_get_index("other", ANNALS_T_PVAR_CLASS_LEVEL, &index) == ANNALS_T_ERR_INVALID_NAME);
    CHECK(annals_t_pvar_get_info(10, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
          ANNALS_T_ERR_INVALID_INDEX);
    CHECK(annals_t_add_pvar("", 0, 1, ANNALS_T_DOUBLE, ANNALS_T_ENUM_NULL, NULL, 0, 0, 0, 1, 1, NULL, NULL,
                            &pvar) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_pvar("none", 0, 1, ANNALS_T_DOUBLE, ANNALS_T_ENUM_NULL, NULL, 0, 0, 0, 1, 0, NULL, NULL,
                            &pvar) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_pvar("huge", 0, 1, ANNALS_T_DOUBLE, ANNALS_T_ENUM_NULL, NULL, 0, 0, 0, 1, INT32_MAX, NULL,
                            NULL, &pvar) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_pvar("class", 0, 10, ANNALS_T_DOUBLE, ANNALS_T_ENUM_NULL, NULL, 0, 0, 0, 1, 1, NULL, NULL,
                            &pvar) == ANNALS_T_ERR_INVALID);
}

static void sums_start_at_zero_and_count_while_started(void) {
    annals_t_pvar sum = kept("sum", ANNALS_T_PVAR_CLASS_COUNTER, ANNALS_T_UNSIGNED_LONG);
    annals_t_pvar_session in = session();
    uint64_t value = 500;
    add(sum, 1000);
    annals_t_pvar_handle of = handle(in, "sum", ANNALS_T_PVAR_CLASS_COUNTER);
    add(sum, 1);
    CHECK(value_of(in, of) == 0);
    OK(annals_t_pvar_start(in, of));
    add(sum, 2);
    CHECK(value_of(in, of) == 2);
    OK(annals_t_pvar_stop(in, of));
    add(sum, 4);
    CHECK(value_of(in, of) == 2);
    OK(annals_t_pvar_start(in, of));
    OK(annals_t_pvar_write(in, of, &value));
    add(sum, 1);
    CHECK(value_of(in, of) == 501);
    OK(annals_t_pvar_reset(in, of));
    add(sum, 3);
    OK(annals_t_pvar_readreset(in, of, &value));
    CHECK(value == 3 && value_of(in, of) == 0);
    OK(annals_t_pvar_session_free(&in));
    CHECK(in == ANNALS_T_PVAR_SESSION_NULL);
}

static void levels_are_those_of_the_moment(void) {
    annals_t_pvar level = kept("level", ANNALS_T_PVAR_CLASS_LEVEL, ANNALS_T_UNSIGNED_LONG);
    annals_t_pvar_session in = session();
    set(level, 5);
    annals_t_pvar_handle of = handle(in, "level", ANNALS_T_PVAR_CLASS_LEVEL);
    set(level, 6);
    CHECK(value_of(in, of) == 5);
    OK(annals_t_pvar_start(in, of));
    CHECK(value_of(in, of) == 6);
    OK(annals_t_pvar_stop(in, of));
    set(level, 7);
    CHECK(value_of(in, of) == 6);
    OK(annals_t_pvar_reset(in, of));
    CHECK(value_of(in, of) == 7);
    OK(annals_t_pvar_session_free(&in));
}

static void watermarks_follow_every_level_since_their_start(void) {
    annals_t_pvar high = kept("mark", ANNALS_T_PVAR_CLASS_HIGHWATERMARK, ANNALS_T_UNSIGNED_LONG);
    annals_t_pvar low = kept("mark", ANNALS_T_PVAR_CLASS_LOWWATERMARK, ANNALS_T_UNSIGNED_LONG);
    annals_t_pvar_session in = session();
    static const uint64_t levels[] = {5, 9, 2, 6};
    set(high, 100), set(low, 100);
    annals_t_pvar_handle highest = handle(in, "mark", ANNALS_T_PVAR_CLASS_HIGHWATERMARK);
    annals_t_pvar_handle lowest = handle(in, "mark", ANNALS_T_PVAR_CLASS_LOWWATERMARK);
    set(high, levels[0]), set(low, levels[0]);
    OK(annals_t_pvar_reset(in, ANNALS_T_PVAR_ALL_HANDLES));
    OK(annals_t_pvar_start(in, ANNALS_T_PVAR_ALL_HANDLES));
    for (int i = 1; i < 4; i++)
        set(high, levels[i]), set(low, levels[i]);
    CHECK(value_of(in, highest) == 9 && value_of(in, lowest) == 2);
    OK(annals_t_pvar_stop(in, ANNALS_T_PVAR_ALL_HANDLES));
    set(high, 50), set(low, 1);
    CHECK(value_of(in, highest) == 9 && value_of(in, lowest) == 2);
    OK(annals_t_pvar_session_free(&in));
}

static void sessions_do_not_disturb_each_other(void) {
    annals_t_pvar sum = kept("shared", ANNALS_T_PVAR_CLASS_COUNTER, ANNALS_T_UNSIGNED_LONG);
    annals_t_pvar_session mine = session(), other = session(), freed;
    annals_t_pvar_handle my_handle = handle(mine, "shared", ANNALS_T_PVAR_CLASS_COUNTER);
    annals_t_pvar_handle its_handle = handle(other, "shared", ANNALS_T_PVAR_CLASS_COUNTER);
    uint64_t value = 77;
    OK(annals_t_pvar_start(mine, my_handle));
    add(sum, 3);
    OK(annals_t_pvar_start(other, its_handle));
    add(sum, 4);
    OK(annals_t_pvar_reset(mine, my_handle));
    OK(annals_t_pvar_write(mine, my_handle, &value));
    OK(annals_t_pvar_stop(mine, ANNALS_T_PVAR_ALL_HANDLES));
    add(sum, 5);
    CHECK(value_of(mine, my_handle) == 77 && value_of(other, its_handle) == 9);
    /* A handle is one of its session's. */
    CHECK(annals_t_pvar_start(mine, its_handle) == ANNALS_T_ERR_INVALID_HANDLE);
    CHECK(annals_t_pvar_handle_free(mine, &its_handle) == ANNALS_T_ERR_INVALID_HANDLE);
    freed = mine;
    OK(annals_t_pvar_session_free(&mine));
    CHECK(annals_t_pvar_start(freed, my_handle) == ANNALS_T_ERR_INVALID_SESSION);
    CHECK(annals_t_pvar_read(freed, my_handle, &value) == ANNALS_T_ERR_INVALID_SESSION);
    CHECK(annals_t_pvar_start(mine, ANNALS_T_PVAR_ALL_HANDLES) == ANNALS_T_ERR_INVALID_SESSION);
    CHECK(annals_t_pvar_session_free(&mine) == ANNALS_T_ERR_INVALID_SESSION);
    CHECK(annals_t_pvar_session_free(NULL) == ANNALS_T_ERR_INVALID);
    annals_t_pvar_handle gone = its_handle;
    OK(annals_t_pvar_handle_free(other, &its_handle));
    CHECK(its_handle == ANNALS_T_PVAR_HANDLE_NULL);
    CHECK(annals_t_pvar_read(other, gone, &value) == ANNALS_T_ERR_INVALID_HANDLE);
    CHECK(annals_t_pvar_readreset(other, its_handle, &value) == ANNALS_T_ERR_INVALID_HANDLE);
    OK(annals_t_pvar_session_free(&other));
}

static void flags_say_what_cannot_be_done(void) {
    annals_t_pvar fixed, slow;
    annals_t_pvar_session in = session();
    uint64_t value = 1;
    OK(annals_t_add_pvar("fixed", 0, ANNALS_T_PVAR_CLASS_COUNTER, ANNALS_T_UNSIGNED_LONG, ANNALS_T_ENUM_NULL, NULL,
                         0, 1, 1, 0, 1, NULL, NULL, &fixed));
    OK(annals_t_add_pvar("slow", 0, ANNALS_T_PVAR_CLASS_COUNTER, ANNALS_T_UNSIGNED_LONG, ANNALS_T_ENUM_NULL, NULL,
                         0, 0, 0, 0, 1, NULL, NULL, &slow));
    /* Read-only and atomic. */
    CHECK(annals_t_add_pvar("both", 0, ANNALS_T_PVAR_CLASS_COUNTER, ANNALS_T_UNSIGNED_LONG, ANNALS_T_ENUM_NULL,
                            NULL, 0, 1, 0, 1, 1, NULL, NULL, &slow) == ANNALS_T_ERR_INVALID);
    annals_t_pvar_handle always = handle(in, "fixed", ANNALS_T_PVAR_CLASS_COUNTER);
    annals_t_pvar_handle slowly = handle(in, "slow", ANNALS_T_PVAR_CLASS_COUNTER);
    CHECK(annals_t_pvar_start(in, always) == ANNALS_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(annals_t_pvar_stop(in, always) == ANNALS_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(annals_t_pvar_reset(in, always) == ANNALS_T_ERR_PVAR_NO_WRITE);
    CHECK(annals_t_pvar_write(in, always, &value) == ANNALS_T_ERR_PVAR_NO_WRITE);
    CHECK(annals_t_pvar_readreset(in, slowly, &value) == ANNALS_T_ERR_PVAR_NO_ATOMIC);
    OK(annals_t_pvar_start(in, ANNALS_T_PVAR_ALL_HANDLES));
    add(slow, 4), add(fixed, 2);
    CHECK(value_of(in, slowly) == 4 && value_of(in, always) == 2);
    OK(annals_t_pvar_reset(in, ANNALS_T_PVAR_ALL_HANDLES));
    CHECK(value_of(in, slowly) == 0 && value_of(in, always) == 2);
    OK(annals_t_pvar_stop(in, ANNALS_T_PVAR_ALL_HANDLES));
    add(slow, 1), add(fixed, 1);
    CHECK(value_of(in, slowly) == 0 && value_of(in, always) == 3);
    CHECK(annals_t_pvar_read(in, ANNALS_T_PVAR_ALL_HANDLES, &value) == ANNALS_T_ERR_INVALID_HANDLE);
    CHECK(annals_t_pvar_write(in, ANNALS_T_PVAR_ALL_HANDLES, &value) == ANNALS_T_ERR_INVALID_HANDLE);
    CHECK(annals_t_pvar_readreset(in, ANNALS_T_PVAR_ALL_HANDLES, &value) == ANNALS_T_ERR_INVALID_HANDLE);
    CHECK(annals_t_pvar_read(in, slowly, NULL) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_pvar_set(NULL, 0, &value) == ANNALS_T_ERR_INVALID_HANDLE);
    CHECK(annals_t_pvar_set(slow, 1, &value) == ANNALS_T_ERR_INVALID_INDEX);
    CHECK(annals_t_pvar_add(slow, -1, &value) == ANNALS_T_ERR_INVALID_INDEX);
    CHECK(annals_t_pvar_notice(slow, 0, NULL) == ANNALS_T_ERR_INVALID);
    OK(annals_t_pvar_session_free(&in));
}

static int notices[4];

static void read_peer(void *data, const annals_t_object *object, int item, void *value) {
    CHECK(data == notices && object != NULL);
    *(uint64_t *)value = *object * 100 + (uint64_t)item;
}
static int count_peers(void *data, const annals_t_object *object) {
    CHECK(data == notices);
    return (int)*object;
}
static void note(void *data, int notice, const annals_t_object *object) {
    CHECK(data == notices && *object == 3);
    notices[notice]++;
}

static void a_bound_variable_is_read_for_its_object(void) {
    static const annals_t_pvar_functions functions = {read_peer, count_peers, note};
    annals_t_pvar_session in = session();
    annals_t_pvar_handle of;
    annals_t_object three = 3;
    annals_t_pvar pvar;
    uint64_t values[4] = {0, 0, 0, 9};
    int index, count = 0, bind = -1;
    OK(annals_t_add_pvar("per peer", 0, ANNALS_T_PVAR_CLASS_LEVEL, ANNALS_T_UNSIGNED_LONG, ANNALS_T_ENUM_NULL, NULL,
                         ANNALS_T_BIND_COMM, 0, 0, 1, 1, &functions, notices, &pvar));
    OK(annals_t_pvar_get_index("per peer", ANNALS_T_PVAR_CLASS_LEVEL, &index));
    OK(annals_t_pvar_get_info(index, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &bind, NULL, NULL, NULL));
    CHECK(bind == ANNALS_T_BIND_COMM);
    CHECK(annals_t_pvar_handle_alloc(in, index, NULL, &of, &count) == ANNALS_T_ERR_INVALID);
    OK(annals_t_pvar_handle_alloc(in, index, &three, &of, &count));
    CHECK(count == 3);
    OK(annals_t_pvar_start(in, of));
    OK(annals_t_pvar_read(in, of, values));
    CHECK(values[0] == 300 && values[1] == 301 && values[2] == 302 && values[3] == 9);
    OK(annals_t_pvar_stop(in, of));
    OK(annals_t_pvar_session_free(&in));
    CHECK(notices[ANNALS_T_PVAR_ALLOCATED] == 1 && notices[ANNALS_T_PVAR_STARTED] == 1);
    CHECK(notices[ANNALS_T_PVAR_STOPPED] == 1 && notices[ANNALS_T_PVAR_FREED] == 1);
    /* A bound variable has a function. */
    CHECK(annals_t_add_pvar("kept", 0, ANNALS_T_PVAR_CLASS_LEVEL, ANNALS_T_DOUBLE, ANNALS_T_ENUM_NULL, NULL,
                            ANNALS_T_BIND_WIN, 0, 0, 1, 1, NULL, NULL, &pvar) == ANNALS_T_ERR_INVALID);
}

static void categories_grow_never_hold_themselves_and_say_when_they_change(void) {
    char name[8], desc[8];
    int outer = -1, inner = -1, other, first = 0, stamp = 0, now = 0, num = -1;
    int name_len = sizeof name, desc_len = sizeof desc, cvars, pvars, categories, events = -1;
    int indices[4] = {-1, -1, -1, -1};
    OK(annals_t_category_changed(&first));
    OK(annals_t_add_category("outer", "all", &outer));
    OK(annals_t_add_category("inner", NULL, &inner));
    OK(annals_t_category_changed(&stamp));
    CHECK(stamp > first && outer == 0 && inner == 1);
    kept("no member", ANNALS_T_PVAR_CLASS_LEVEL, ANNALS_T_DOUBLE);
    OK(annals_t_category_changed(&now));
    CHECK(now == stamp);
    OK(annals_t_add_to_category(outer, ANNALS_T_MEMBER_CATEGORY, inner));
    OK(annals_t_add_to_category(inner, ANNALS_T_MEMBER_PVAR, 1));
    OK(annals_t_add_to_category(inner, ANNALS_T_MEMBER_PVAR, 0));
    OK(annals_t_add_to_category(inner, ANNALS_T_MEMBER_CVAR, 2));
    OK(annals_t_category_changed(&now));
    CHECK(now > stamp);
    stamp = now;
    OK(annals_t_add_to_category(inner, ANNALS_T_MEMBER_PVAR, 1));
    OK(annals_t_category_changed(&now));
    CHECK(now == stamp);
    OK(annals_t_category_get_info(inner, name, &name_len, desc, &desc_len, &cvars, &pvars, &categories));
    CHECK(!strcmp(name, "inner") && name_len == 6 && desc[0] == 0 && desc_len == 1);
    CHECK(cvars == 1 && pvars == 2 && categories == 0);
    OK(annals_t_category_get_num_events(inner, &events));
    CHECK(events == 0);
    OK(annals_t_category_get_pvars(inner, 1, indices));
    CHECK(indices[0] == 1 && indices[1] == -1);
    OK(annals_t_category_get_pvars(inner, 4, indices));
    CHECK(indices[0] == 1 && indices[1] == 0 && indices[2] == -1);
    OK(annals_t_category_get_cvars(inner, 4, indices));
    CHECK(indices[0] == 2);
    OK(annals_t_category_get_categories(outer, 4, indices));
    CHECK(indices[0] == inner);
    OK(annals_t_category_get_events(outer, 0, NULL));
    CHECK(annals_t_category_get_events(outer, 1, NULL) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_category_get_events(outer, -1, indices) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_to_category(outer, ANNALS_T_MEMBER_CATEGORY, outer) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_to_category(inner, ANNALS_T_MEMBER_CATEGORY, outer) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_to_category(inner, ANNALS_T_MEMBER_EVENT, 0) == ANNALS_T_ERR_INVALID_INDEX);
    CHECK(annals_t_add_to_category(7, ANNALS_T_MEMBER_CVAR, 0) == ANNALS_T_ERR_INVALID_INDEX);
    CHECK(annals_t_add_to_category(inner, 4, 0) == ANNALS_T_ERR_INVALID);
    CHECK(annals_t_add_category("inner", "", &other) == ANNALS_T_ERR_INVALID_NAME);
    CHECK(annals_t_add_category("", "", &other) == ANNALS_T_ERR_INVALID);
    OK(annals_t_category_get_index("inner", &other));
    CHECK(other == inner);
    CHECK(annals_t_category_get_index("other", &other) == ANNALS_T_ERR_INVALID_NAME);
    CHECK(annals_t_category_get_info(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == ANNALS_T_ERR_INVALID_INDEX);
    OK(annals_t_category_get_num(&num));
    CHECK(num == 2);
}

static void tools_must_initialise_before_they_ask(void) {
    annals_t_pvar_session in;
    annals_t_cvar_handle handle;
    int num;
    CHECK(annals_t_pvar_get_num(&num) == ANNALS_T_ERR_NOT_INITIALIZED);
    CHECK(annals_t_cvar_get_num(&num) == ANNALS_T_ERR_NOT_INITIALIZED);
    CHECK(annals_t_category_get_num(&num) == ANNALS_T_ERR_NOT_INITIALIZED);
    CHECK(annals_t_category_changed(&num) == ANNALS_T_ERR_NOT_INITIALIZED);
    CHECK(annals_t_pvar_session_create(&in) == ANNALS_T_ERR_NOT_INITIALIZED);
    CHECK(annals_t_cvar_handle_alloc(0, NULL, &handle, &num) == ANNALS_T_ERR_NOT_INITIALIZED);
    OK(annals_t_init_thread(ANNALS_T_THREAD_MULTIPLE, NULL));
}

int main(void) {
    RUN(tools_must_initialise_before_they_ask);
    RUN(enumerations_have_names_of_their_own_and_at_least_one_item);
    RUN(control_variables_are_read_and_set_as_their_scope_allows);
    RUN(a_producer_may_refuse_a_setting_for_now);
    RUN(texts_of_variables_end_with_a_zero_that_counts);
    RUN(performance_variables_keep_their_index_and_what_they_say);
    RUN(sums_start_at_zero_and_count_while_started);
    RUN(levels_are_those_of_the_moment);
    RUN(watermarks_follow_every_level_since_their_start);
    RUN(sessions_do_not_disturb_each_other);
    RUN(flags_say_what_cannot_be_done);
    RUN(a_bound_variable_is_read_for_its_object);
    RUN(categories_grow_never_hold_themselves_and_say_when_they_change);
    return 0;
}
