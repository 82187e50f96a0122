/* Runs for some time, and then ends, or hangs, in functions that were not called before. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char **arguments;

void deep(void) {
    if (strcmp(arguments[1], "kill") == 0) raise(SIGKILL);
    if (strcmp(arguments[1], "abort") == 0) abort();
    if (strcmp(arguments[1], "exit") == 0) _exit(3);
    if (strcmp(arguments[1], "hang") == 0) {
        puts("hangs");
        fflush(stdout);
        alarm(60); /* A test that fails does not end it. */
        for (;;) pause();
    }
    if (strcmp(arguments[1], "plugin") == 0) {
        void *plugin = dlopen(arguments[2], RTLD_NOW);
        if (!plugin) fprintf(stderr, "%s\n", dlerror());
        ((void (*)(void))dlsym(plugin, "plugged"))();
    }
    *(volatile int *)0 = 1;
}
void crashing(void) { deep(); }
void leaf(void) { usleep(200); }
void work(void) { for (int i = 0; i < 100; i++) leaf(); }

int main(int count, char **given) {
    arguments = given;
    if (count > 3) usleep(1000 * atoi(given[3]));
    work();
    crashing();
    return 0;
}
