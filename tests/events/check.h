/* What the conformance programs in C have in common. */
#ifndef CHECK_H
#define CHECK_H

#include <annals_t.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                               \
    do {                                                                                               \
        if (!(condition)) {                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #condition);                            \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)
#define OK(call) CHECK((call) == ANNALS_T_SUCCESS)

/* Prints the name of a test that holds. */
#define RUN(test) (test(), (void)puts(#test))

#endif
