/*
 * The event interface from C, compared with the standard's text (tests/events/conformance.tsv names
 * these functions). Prints the name of each test that holds.
 */
#include "check.h"

static int64_t ticks;
static int64_t read_ticks(void *data) {
    CHECK(data == &ticks);
    return ticks;
}

static annals_t_source source, mute;
static annals_t_event_type event, bound;
struct payload {
    int32_t number;
    double ratio;
};

static int calls, drops, frees;
static int64_t dropped_count;
static int last_safety, last_number;
static annals_t_event_registration last_registration;
static int user_data_here;

static void on_event(annals_t_event_instance instance, annals_t_event_registration registration,
                     annals_t_cb_safety safety, void *user_data) {
    CHECK(user_data == &user_data_here);
    OK(annals_t_event_read(instance, 0, &last_number));
    last_safety = safety;
    last_registration = registration;
    calls++;
}

static void on_drop(annals_t_count count, annals_t_event_registration registration, int source_index,
                    annals_t_cb_safety safety, void *user_data) {
    CHECK(user_data == &user_data_here && source_index == 0);
    last_registration = registration;
    last_safety = safety;
    dropped_count = count;
    drops++;
}

static void on_free(annals_t_event_registration registration, annals_t_cb_safety safety, void *user_data) {
    CHECK(user_data == &frees);
    last_registration = registration;
    last_safety = safety;
    frees++;
}

static annals_t_event_registration registered(annals_t_cb_safety level) {
    annals_t_event_registration registration;
    OK(annals_t_event_handle_alloc(0, NULL, ANNALS_T_INFO_NULL, &registration));
    OK(annals_t_event_register_callback(registration, level, ANNALS_T_INFO_NULL, &user_data_here, on_event));
    calls = drops = frees = 0;
    return registration;
}

static void raise_in(annals_t_cb_safety safety, int number) {
    struct payload payload = {number, 0.5};
    OK(annals_t_raise(event, source, safety, NULL, NULL, &payload));
}

static void initialisation_is_counted(void) {
    int provided = -1, number;
    CHECK(annals_t_source_get_num(&number) == ANNALS_T_ERR_NOT_INITIALIZED);
    CHECK(annals_t_finalize() == ANNALS_T_ERR_NOT_INITIALIZED);
    OK(annals_t_init_thread(ANNALS_T_THREAD_SINGLE, &provided));
    CHECK(provided == ANNALS_T_THREAD_MULTIPLE);
    OK(annals_t_init_thread(ANNALS_T_THREAD_MULTIPLE, NULL));
    OK(annals_t_finalize());
    OK(annals_t_source_get_num(&number));
    OK(annals_t_finalize());
    CHECK(annals_t_source_get_num(&number) == ANNALS_T_ERR_NOT_INITIALIZED);
    OK(annals_t_init_thread(ANNALS_T_THREAD_MULTIPLE, &provided));
}

static void a_source_says_its_order_clock_and_hints(void) {
    char name[8], desc[64];
    int name_len = sizeof name, desc_len = sizeof desc, order = -1, num = 0, keys = -1;
    annals_t_count rate = 0, max = 0;
    annals_t_info info = ANNALS_T_INFO_NULL;
    OK(annals_t_source_get_num(&num));
    CHECK(num == 2);
    OK(annals_t_source_get_info(0, name, &name_len, desc, &desc_len, &order, &rate, &max, &info));
    CHECK(!strcmp(name, "a sourc") && name_len == 9);
    CHECK(!strcmp(desc, "of this test") && desc_len == 13);
    CHECK(order == ANNALS_T_SOURCE_ORDERED && rate == 1000 && max == INT64_MAX);
    OK(annals_t_info_get_nkeys(info, &keys));
    CHECK(keys == 0);
    OK(annals_t_info_free(&info));
    CHECK(info == ANNALS_T_INFO_NULL);
    OK(annals_t_source_get_info(1, NULL, NULL, NULL, NULL, &order, NULL, &max, NULL));
    CHECK(order == ANNALS_T_SOURCE_UNORDERED && max == 99);
    CHECK(annals_t_source_get_info(2, name, &name_len, NULL, NULL, NULL, NULL, NULL, NULL) ==
          ANNALS_T_ERR_INVALID_INDEX);
    CHECK(annals_t_source_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
          ANNALS_T_ERR_INVALID_INDEX);
}

static void a_source_tells_its_time_or_that_it_cannot(void) {
    annals_t_count time = 0;
    ticks = 17;
    OK(annals_t_source_get_timestamp(0, &time));
    CHECK(time == 17);
    CHECK(annals_t_source_get_timestamp(1, &time) == ANNALS_T_ERR_NOT_SUPPORTED);
    CHECK(annals_t_source_get_timestamp(2, &time) == ANNALS_T_ERR_INVALID_INDEX);
}

static void an_event_type_says_what_it_is(void) {
    char name[64], again[64], desc[64] = "x";
    int name_len = sizeof name, again_len = sizeof again, desc_len = sizeof desc, verbosity = -1, num = 0;
    int elements = 1, bind = -1, value = -1, index = -1;
    annals_t_datatype types[2] = {-1, -1};
    annals_t_aint at[2] = {-1, -1};
    annals_t_enum names = ANNALS_T_ENUM_NULL;
    OK(annals_t_event_get_num(&num));
    CHECK(num == 2);
    /* Room for fewer elements than there are: the list is cut, and the number is returned. */
    OK(annals_t_event_get_info(0, name, &name_len, &verbosity, types, at, &elements, &names, NULL, desc,
                               &desc_len, &bind));
    CHECK(!strcmp(name, "event") && name_len == 6 && elements == 2);
    CHECK(types[0] == ANNALS_T_INT && at[0] == 0 && types[1] == -1 && at[1] == -1);
    CHECK(verbosity == ANNALS_T_VERBOSITY_TUNER_DETAIL && bind == ANNALS_T_BIND_NO_OBJECT);
    /* No description: an empty text. */
    CHECK(desc[0] == 0 && desc_len == 1);
    OK(annals_t_event_get_info(0, again, &again_len, NULL, types, at, &elements, NULL, NULL, NULL, NULL, NULL));
    CHECK(!strcmp(name, again) && types[1] == ANNALS_T_DOUBLE && at[1] == offsetof(struct payload, ratio));
    OK(annals_t_event_get_info(0, NULL, NULL, NULL, types, at, NULL, NULL, NULL, NULL, NULL, NULL));
    OK(annals_t_enum_get_info(names, &num, NULL, NULL));
    CHECK(num == 2);
    again_len = sizeof again;
    OK(annals_t_enum_get_item(names, 1, &value, again, &again_len));
    CHECK(value == 1 && !strcmp(again, "ratio"));
    CHECK(annals_t_enum_get_item(names, 2, &value, NULL, NULL) == ANNALS_T_ERR_INVALID_ITEM);
    CHECK(annals_t_event_get_info(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
          ANNALS_T_ERR_INVALID_INDEX);
    OK(annals_t_event_get_index("bound", &index));
    CHECK(index == 1);
    CHECK(annals_t_event_get_index("boun", &index) == ANNALS_T_ERR_INVALID_NAME);
}

static void texts_are_cut_to_the_buffer(void) {
    char name[4] = "xyz";
    int length = 0;
    OK(annals_t_event_get_info(0, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(length == 6 && !strcmp(name, "xyz"));
    length = 3;
    OK(annals_t_event_get_info(0, NULL, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(length == 6);
    length = 4;
    OK(annals_t_event_get_info(0, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(length == 6 && !strcmp(name, "eve"));
    OK(annals_t_event_get_info(0, name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
}

static void the_lowest_level_that_the_context_allows_is_called(void) {
    annals_t_event_registration registration = registered(ANNALS_T_CB_REQUIRE_THREAD_SAFE);
    raise_in(ANNALS_T_CB_REQUIRE_RESTRICTED, 4);
    CHECK(calls == 1 && last_number == 4 && last_registration == registration);
    CHECK(last_safety == ANNALS_T_CB_REQUIRE_RESTRICTED);
    raise_in(ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, 5);
    CHECK(calls == 1);
    /* Removed: no callback is called. */
    OK(annals_t_event_register_callback(registration, ANNALS_T_CB_REQUIRE_THREAD_SAFE, ANNALS_T_INFO_NULL,
                                        NULL, NULL));
    raise_in(ANNALS_T_CB_REQUIRE_NONE, 6);
    CHECK(calls == 1);
    CHECK(annals_t_event_register_callback(registration, 4, ANNALS_T_INFO_NULL, NULL, NULL) ==
          ANNALS_T_ERR_INVALID);
    OK(annals_t_event_handle_free(registration, NULL, NULL));
}

static void the_handler_is_called_before_the_next_event_of_the_source(void) {
    annals_t_event_registration registration = registered(ANNALS_T_CB_REQUIRE_RESTRICTED);
    OK(annals_t_event_set_dropped_handler(registration, on_drop));
    raise_in(ANNALS_T_CB_REQUIRE_NONE, 1);
    raise_in(ANNALS_T_CB_REQUIRE_THREAD_SAFE, 3);
    raise_in(ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, 4);
    CHECK(drops == 0);
    raise_in(ANNALS_T_CB_REQUIRE_RESTRICTED, 5);
    CHECK(drops == 1 && dropped_count == 2 && calls == 2 && last_number == 5);
    OK(annals_t_report_dropped(event, source, NULL, INT64_MAX));
    OK(annals_t_report_dropped(event, source, NULL, INT64_MAX));
    raise_in(ANNALS_T_CB_REQUIRE_NONE, 6);
    CHECK(drops == 2 && dropped_count == INT64_MAX);
    OK(annals_t_event_set_dropped_handler(registration, NULL));
    raise_in(ANNALS_T_CB_REQUIRE_THREAD_SAFE, 7);
    raise_in(ANNALS_T_CB_REQUIRE_NONE, 8);
    CHECK(drops == 2);
    OK(annals_t_event_handle_free(registration, NULL, NULL));
}

static void freeing_calls_the_free_callback_once_with_the_handle(void) {
    annals_t_event_registration registration = registered(ANNALS_T_CB_REQUIRE_NONE);
    OK(annals_t_event_handle_free(registration, &frees, on_free));
    CHECK(frees == 1 && last_registration == registration);
    raise_in(ANNALS_T_CB_REQUIRE_NONE, 1);
    CHECK(calls == 0 && !annals_t_is_wanted(event));
    CHECK(annals_t_event_handle_free(registration, &frees, on_free) == ANNALS_T_ERR_INVALID_HANDLE);
    CHECK(frees == 1);
}

static void free_itself(annals_t_event_instance instance, annals_t_event_registration registration,
                        annals_t_cb_safety safety, void *user_data) {
    int number = 0;
    (void)user_data;
    (void)safety;
    OK(annals_t_event_handle_free(registration, &frees, on_free));
    OK(annals_t_event_read(instance, 0, &number));
    CHECK(number == 9 && frees == 0);
    calls++;
}

static void a_registration_may_be_freed_in_its_own_callback(void) {
    annals_t_event_registration registration = registered(ANNALS_T_CB_REQUIRE_NONE);
    OK(annals_t_event_register_callback(registration, ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
                                        ANNALS_T_INFO_NULL, NULL, free_itself));
    raise_in(ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, 9);
    CHECK(calls == 1 && frees == 1 && last_safety == ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE);
}

static void look_at(annals_t_event_instance instance, annals_t_event_registration registration,
                    annals_t_cb_safety safety, void *user_data) {
    struct payload payload;
    double ratio = 0;
    annals_t_count time = 0;
    int index = -1;
    (void)registration;
    (void)safety;
    (void)user_data;
    OK(annals_t_event_read(instance, 1, &ratio));
    OK(annals_t_event_copy(instance, &payload));
    CHECK(ratio == 0.5 && payload.ratio == 0.5 && payload.number == 3);
    CHECK(annals_t_event_read(instance, 2, &ratio) == ANNALS_T_ERR_INVALID_INDEX);
    OK(annals_t_event_get_timestamp(instance, &time));
    OK(annals_t_event_get_source(instance, &index));
    CHECK(annals_t_event_read(NULL, 0, &ratio) == ANNALS_T_ERR_INVALID_HANDLE);
    if (calls++ == 0)
        CHECK(time == 21 && index == 0);
    else
        CHECK(time == 77 && index == 1);
}

static void an_instance_tells_its_elements_source_and_time(void) {
    annals_t_event_registration registration = registered(ANNALS_T_CB_REQUIRE_NONE);
    struct payload payload = {3, 0.5};
    annals_t_count observed = 77;
    OK(annals_t_event_register_callback(registration, ANNALS_T_CB_REQUIRE_NONE, ANNALS_T_INFO_NULL, NULL,
                                        look_at));
    ticks = 21;
    raise_in(ANNALS_T_CB_REQUIRE_NONE, 3);
    OK(annals_t_raise(event, mute, ANNALS_T_CB_REQUIRE_NONE, &observed, NULL, &payload));
    CHECK(calls == 2);
    CHECK(annals_t_raise(event, mute, ANNALS_T_CB_REQUIRE_NONE, NULL, NULL, &payload) ==
          ANNALS_T_ERR_NOT_SUPPORTED);
    OK(annals_t_event_handle_free(registration, NULL, NULL));
}

static void deferred_instances_keep_their_time_and_order(void) {
    annals_t_event_registration registration = registered(ANNALS_T_CB_REQUIRE_NONE);
    struct payload payload = {3, 0.5};
    int count = 0;
    OK(annals_t_event_register_callback(registration, ANNALS_T_CB_REQUIRE_NONE, ANNALS_T_INFO_NULL, NULL,
                                        look_at));
    ticks = 21;
    OK(annals_t_raise_deferred(event, source, NULL, NULL, &payload));
    ticks = 50;
    CHECK(calls == 0);
    OK(annals_t_deliver(source, ANNALS_T_CB_REQUIRE_NONE, &count));
    CHECK(calls == 1 && count == 1);
    OK(annals_t_event_handle_free(registration, NULL, NULL));
}

static void a_bound_registration_hears_of_its_object_only(void) {
    annals_t_event_registration registration;
    annals_t_object mine = 7, other = 8;
    int32_t number = 1;
    CHECK(annals_t_event_handle_alloc(1, NULL, ANNALS_T_INFO_NULL, &registration) == ANNALS_T_ERR_INVALID);
    OK(annals_t_event_handle_alloc(1, &mine, ANNALS_T_INFO_NULL, &registration));
    OK(annals_t_event_register_callback(registration, ANNALS_T_CB_REQUIRE_NONE, ANNALS_T_INFO_NULL,
                                        &user_data_here, on_event));
    calls = 0;
    OK(annals_t_raise(bound, source, ANNALS_T_CB_REQUIRE_NONE, NULL, &other, &number));
    CHECK(calls == 0);
    OK(annals_t_raise(bound, source, ANNALS_T_CB_REQUIRE_NONE, NULL, &mine, &number));
    CHECK(calls == 1);
    OK(annals_t_event_handle_free(registration, NULL, NULL));
}

static void wrong_indexes_and_handles_are_refused(void) {
    annals_t_event_registration wrong[3] = {ANNALS_T_EVENT_REGISTRATION_NULL,
                                            (annals_t_event_registration)(uintptr_t)-1,
                                            registered(ANNALS_T_CB_REQUIRE_NONE)};
    annals_t_event_registration registration;
    annals_t_info info = ANNALS_T_INFO_NULL;
    OK(annals_t_event_handle_free(wrong[2], NULL, NULL));
    CHECK(annals_t_event_handle_alloc(2, NULL, ANNALS_T_INFO_NULL, &registration) == ANNALS_T_ERR_INVALID_INDEX);
    CHECK(annals_t_event_handle_alloc(-1, NULL, ANNALS_T_INFO_NULL, &registration) == ANNALS_T_ERR_INVALID_INDEX);
    for (int i = 0; i < 3; i++) {
        CHECK(annals_t_event_handle_free(wrong[i], NULL, NULL) == ANNALS_T_ERR_INVALID_HANDLE);
        CHECK(annals_t_event_set_dropped_handler(wrong[i], on_drop) == ANNALS_T_ERR_INVALID_HANDLE);
        CHECK(annals_t_event_register_callback(wrong[i], 0, info, NULL, on_event) == ANNALS_T_ERR_INVALID_HANDLE);
        CHECK(annals_t_event_handle_set_info(wrong[i], info) == ANNALS_T_ERR_INVALID_HANDLE);
        CHECK(annals_t_event_handle_get_info(wrong[i], &info) == ANNALS_T_ERR_INVALID_HANDLE);
        CHECK(annals_t_event_callback_set_info(wrong[i], 0, info) == ANNALS_T_ERR_INVALID_HANDLE);
        CHECK(annals_t_event_callback_get_info(wrong[i], 0, &info) == ANNALS_T_ERR_INVALID_HANDLE);
    }
}

static void known_hints_are_kept_and_unknown_ones_ignored(void) {
    annals_t_event_registration registration = registered(ANNALS_T_CB_REQUIRE_NONE);
    annals_t_info given, used = ANNALS_T_INFO_NULL;
    char text[16];
    int flag = -1, keys = -1, length = sizeof text;
    OK(annals_t_info_create(&given));
    OK(annals_t_info_set(given, "unknown", "value"));
    OK(annals_t_info_get(given, "unknown", text, &length, &flag));
    CHECK(flag == 1 && !strcmp(text, "value") && length == 6);
    length = sizeof text;
    OK(annals_t_info_get_nthkey(given, 0, text, &length));
    CHECK(!strcmp(text, "unknown"));
    OK(annals_t_event_handle_set_info(registration, given));
    OK(annals_t_event_handle_get_info(registration, &used));
    OK(annals_t_info_get_nkeys(used, &keys));
    OK(annals_t_info_get(used, "unknown", NULL, NULL, &flag));
    CHECK(keys == 0 && flag == 0);
    OK(annals_t_info_free(&used));
    OK(annals_t_event_callback_set_info(registration, ANNALS_T_CB_REQUIRE_NONE, given));
    OK(annals_t_event_callback_get_info(registration, ANNALS_T_CB_REQUIRE_NONE, &used));
    OK(annals_t_info_free(&used));
    CHECK(annals_t_event_callback_get_info(registration, ANNALS_T_CB_REQUIRE_THREAD_SAFE, &used) ==
          ANNALS_T_ERR_INVALID);
    OK(annals_t_info_free(&given));
    OK(annals_t_event_handle_free(registration, NULL, NULL));
}

int main(void) {
    static const char *const names[] = {"number", "ratio"};
    static const annals_t_datatype types[] = {ANNALS_T_INT, ANNALS_T_DOUBLE};
    RUN(initialisation_is_counted);
    OK(annals_t_add_source("a source", "of this test", ANNALS_T_SOURCE_ORDERED, 1000, 0, read_ticks, &ticks,
                           0, 4, &source));
    OK(annals_t_add_source("mute", NULL, ANNALS_T_SOURCE_UNORDERED, 1000, 99, NULL, NULL, 0, 0, &mute));
    OK(annals_t_add_event_type("event", NULL, ANNALS_T_VERBOSITY_TUNER_DETAIL, 2, names, types, NULL,
                               ANNALS_T_BIND_NO_OBJECT, &event));
    OK(annals_t_add_event_type("bound", "a", 0, 1, names, types, NULL, ANNALS_T_BIND_COMM, &bound));
    CHECK(annals_t_add_event_type("event", NULL, 0, 0, NULL, NULL, NULL, 0, &event) ==
          ANNALS_T_ERR_INVALID_NAME);
    RUN(a_source_says_its_order_clock_and_hints);
    RUN(a_source_tells_its_time_or_that_it_cannot);
    RUN(an_event_type_says_what_it_is);
    RUN(texts_are_cut_to_the_buffer);
    RUN(the_lowest_level_that_the_context_allows_is_called);
    RUN(the_handler_is_called_before_the_next_event_of_the_source);
    RUN(freeing_calls_the_free_callback_once_with_the_handle);
    RUN(a_registration_may_be_freed_in_its_own_callback);
    RUN(an_instance_tells_its_elements_source_and_time);
    RUN(deferred_instances_keep_their_time_and_order);
    RUN(a_bound_registration_hears_of_its_object_only);
    RUN(wrong_indexes_and_handles_are_refused);
    RUN(known_hints_are_kept_and_unknown_ones_ignored);
    return 0;
}
