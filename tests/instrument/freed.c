/* A program that frees the recorder that records its functions, and continues in several threads. */
#include <pthread.h>
#include <stdio.h>

#include <annals.h>

static volatile int sum;
static int is_freed;

void work(void) { sum++; }

static void *work_until_freed(void *argument)
{
    int left = 1000;
    (void)argument;
    while (left > 0) {
        work();
        left -= __atomic_load_n(&is_freed, __ATOMIC_ACQUIRE);
    }
    return NULL;
}

int main(void)
{
    annals_recorder recorder = annals_global();
    annals_region region;
    pthread_t threads[3];
    int wrong = recorder.bits == 0;
    for (int n = 0; n < 1000; n++) work();
    for (int n = 0; n < 3; n++) pthread_create(&threads[n], NULL, work_until_freed, NULL);
    wrong += annals_free(recorder) != ANNALS_OK;
    wrong += annals_global().bits != 0;
    /* It is finished, and still there. */
    wrong += annals_add_region(recorder, "late", &region) != ANNALS_ERROR_FINISHED;
    __atomic_store_n(&is_freed, 1, __ATOMIC_RELEASE);
    for (int n = 0; n < 3; n++) pthread_join(threads[n], NULL);
    wrong += annals_free(recorder) != ANNALS_OK;
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
