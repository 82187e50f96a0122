/* Loads a library, calls it and unloads it, three times. Its runtime stays: threads of that are there. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc < 2 || !dlopen("libgomp.so.1", RTLD_NOW)) return 1;
    for (int turn = 0; turn < 3; turn++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        int (*count)(void) = library ? (int (*)(void))dlsym(library, "count") : NULL;
        if (!count) return 2;
        printf("%d threads\n", count());
        dlclose(library);
    }
    return 0;
}
