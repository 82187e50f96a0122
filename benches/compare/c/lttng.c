/* One function for each event type: tracepoints are macros, and these are the calls that are
 * measured, out of line as every contestant's are. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_provider.h"

int compare_lttng_is_on(void) { return lttng_ust_tracepoint_enabled(annals_compare, enter); }

void compare_lttng_enter(uint32_t region) { lttng_ust_tracepoint(annals_compare, enter, region); }

void compare_lttng_leave(uint32_t region) { lttng_ust_tracepoint(annals_compare, leave, region); }

void compare_lttng_three(uint32_t a, uint32_t b, uint64_t c) {
    lttng_ust_tracepoint(annals_compare, three, a, b, c);
}

void compare_lttng_send(uint32_t receiver, uint32_t communicator, uint32_t tag, uint64_t length,
                        uint64_t request, uint32_t datatype) {
    lttng_ust_tracepoint(annals_compare, send, receiver, communicator, tag, length, request,
                         datatype);
}

void compare_lttng_point(uint32_t kind, uint32_t value) {
    switch (kind) {
    case 0: lttng_ust_tracepoint(annals_compare, point_0, value); break;
    case 1: lttng_ust_tracepoint(annals_compare, point_1, value); break;
    case 2: lttng_ust_tracepoint(annals_compare, point_2, value); break;
    default: lttng_ust_tracepoint(annals_compare, point_3, value); break;
    }
}

void compare_lttng_metric(int64_t value) { lttng_ust_tracepoint(annals_compare, metric, value); }

void compare_lttng_note(void) { lttng_ust_tracepoint(annals_compare, note, "state changed"); }
