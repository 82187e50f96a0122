/* 'setup' takes 20 ms once, then 'solve' 100 ms, 'main' itself 50 ms. Threads, recursion, and a library that is loaded late. */
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

void setup(void) { usleep(20000); }
void solve(void) { usleep(100000); }
void again(int depth) { if (depth > 0) again(depth - 1); else usleep(10000); }
void *in_thread(void *nothing) { usleep(10000); return nothing; }

int main(int count, char **arguments) {
    pthread_t thread;
    setup();
    solve();
    again(5);
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, 0);
    if (count > 1) {
        void *plugin = dlopen(arguments[1], RTLD_NOW);
        if (plugin) ((void (*)(void))dlsym(plugin, "plugged"))();
    }
    usleep(50000);
    return 0;
}
