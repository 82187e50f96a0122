// A library that the program loads while it runs, and unloads: several of these, compiled with another
// NAME each, come to lie at the same place.
#include "count.h"

extern "C" int NAME(int rounds);

static int helper(int number) { COUNT(HELPER);
    return number + 1;
}

int NAME(int rounds) { COUNT(TEXT);
    int sum = 0;
    for (int round = 0; round < rounds; round++)
        sum += helper(round);
    return sum;
}
