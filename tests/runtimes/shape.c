/* Two parallel loops in which each of two threads has a parallel loop of five, as in a test program of CASITA. */
#include <omp.h>

static volatile double sum;

static void work(void) {
    double mine = 0;
    for (int i = 0; i < 20000; i++) mine += i;
    sum = mine;
}

int main(void) {
    omp_set_max_active_levels(2);
#pragma omp parallel for num_threads(2)
    for (int i = 0; i < 2; i++) {
#pragma omp parallel for num_threads(5)
        for (int j = 0; j < 5; j++) work();
    }
#pragma omp parallel for num_threads(2)
    for (int i = 0; i < 2; i++) {
#pragma omp parallel for num_threads(5)
        for (int j = 0; j < 5; j++) work();
    }
    return 0;
}
