/* A program with three children by fork: two call a function, the third one does nothing that is recorded. */
#include <sys/wait.h>
#include <unistd.h>

static volatile long sum;

void work(void) { sum++; }

int main(int argc, char **argv) {
    for (int n = 0; n < 3; n++)
        if (fork() == 0) {
            if (n < 2) work();
            _exit(0);
        }
    while (wait(0) > 0);
    work();
    if (argc > 1) _exit(1);
    return 0;
}
