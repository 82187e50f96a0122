/* The event types of the measured programs, as an LTTng-UST tracepoint provider. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER annals_compare

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng_provider.h"

#if !defined(COMPARE_LTTNG_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define COMPARE_LTTNG_PROVIDER_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(annals_compare, enter, LTTNG_UST_TP_ARGS(uint32_t, region),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint32_t, region, region)))

LTTNG_UST_TRACEPOINT_EVENT(annals_compare, leave, LTTNG_UST_TP_ARGS(uint32_t, region),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint32_t, region, region)))

LTTNG_UST_TRACEPOINT_EVENT(annals_compare, three,
    LTTNG_UST_TP_ARGS(uint32_t, a, uint32_t, b, uint64_t, c),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, a, a)
        lttng_ust_field_integer(uint32_t, b, b)
        lttng_ust_field_integer(uint64_t, c, c)))

LTTNG_UST_TRACEPOINT_EVENT(annals_compare, send,
    LTTNG_UST_TP_ARGS(uint32_t, receiver, uint32_t, communicator, uint32_t, tag, uint64_t, length,
                      uint64_t, request, uint32_t, datatype),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, receiver, receiver)
        lttng_ust_field_integer(uint32_t, communicator, communicator)
        lttng_ust_field_integer(uint32_t, tag, tag)
        lttng_ust_field_integer(uint64_t, length, length)
        lttng_ust_field_integer(uint64_t, request, request)
        lttng_ust_field_integer(uint32_t, datatype, datatype)))

LTTNG_UST_TRACEPOINT_EVENT_CLASS(annals_compare, point, LTTNG_UST_TP_ARGS(uint32_t, value),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint32_t, value, value)))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(annals_compare, point, annals_compare, point_0,
    LTTNG_UST_TP_ARGS(uint32_t, value))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(annals_compare, point, annals_compare, point_1,
    LTTNG_UST_TP_ARGS(uint32_t, value))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(annals_compare, point, annals_compare, point_2,
    LTTNG_UST_TP_ARGS(uint32_t, value))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(annals_compare, point, annals_compare, point_3,
    LTTNG_UST_TP_ARGS(uint32_t, value))

LTTNG_UST_TRACEPOINT_EVENT(annals_compare, metric, LTTNG_UST_TP_ARGS(int64_t, value),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int64_t, value, value)))

LTTNG_UST_TRACEPOINT_EVENT(annals_compare, note, LTTNG_UST_TP_ARGS(const char *, text),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_string(text, text)))

#endif

#include <lttng/tracepoint-event.h>
