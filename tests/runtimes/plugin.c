/* A library with a parallel region of two threads. */
int count(void);

int count(void) {
    int threads = 0;
#pragma omp parallel num_threads(2) reduction(+ : threads)
    threads++;
    return threads;
}
