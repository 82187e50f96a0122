// Every function counts its calls itself; at the end, the counts are printed: name, file, line, calls.
#include "count.h"
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

Count *&all_counts();

namespace shapes {
int area(int width, int height);
double area(double radius);
int careful(int depth);
} // namespace shapes

static long fibonacci(int n) { COUNT("fibonacci(int)");
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static jmp_buf place;

static int deep(int depth) { COUNT("deep(int)");
    if (depth == 0)
        longjmp(place, 1);
    return depth < 0 ? 0 : deep(depth - 1);
}

// Abandons three calls of `deep`, which never return.
static int jump() { COUNT("jump()");
    if (setjmp(place))
        return 1;
    deep(2);
    return 0;
}

static void interrupted(int) { COUNT("interrupted(int)");
}

static void worker(int number) { COUNT("worker(int)");
    for (int n = 0; n < 1000; n++)
        shapes::area(n, number);
}

static int plug(const std::string &directory, const std::string &name) { COUNT("plug");
    void *library = dlopen((directory + "/lib" + name + ".so").c_str(), RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    auto function = reinterpret_cast<int (*)(int)>(dlsym(library, name.c_str()));
    int sum = function(10);
    // Its counters are unloaded with it: they are printed before.
    for (Count **link = &all_counts(); *link;) {
        Count *count = *link;
        if (std::string(count->file).find("plugin") == std::string::npos) {
            link = &count->next;
            continue;
        }
        printf("%s\t%s\t%d\t%lu\n", count->name, count->file, count->line, count->calls.load());
        *link = count->next;
    }
    dlclose(library);
    return sum;
}

int main(int, char **arguments) { COUNT("main");
    std::string directory = arguments[1], how = arguments[2] ? arguments[2] : "";
    fibonacci(15);
    shapes::area(2.0);
    shapes::careful(4);
    for (int n = 0; n < 5; n++)
        jump();
    signal(SIGUSR1, interrupted);
    for (int n = 0; n < 20; n++)
        raise(SIGUSR1);
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; n++)
        threads.emplace_back(worker, n);
    for (auto &thread : threads)
        thread.join();
    if (pid_t child = fork()) {
        int status;
        waitpid(child, &status, 0);
        if (status != 0)
            abort();
    } else {
        // Not recorded, and nothing hangs.
        fibonacci(5);
        plug(directory, "third");
        _exit(0);
    }
    plug(directory, "first");
    plug(directory, "second");
    for (Count *count = all_counts(); count; count = count->next)
        printf("%s\t%s\t%d\t%lu\n", count->name, count->file, count->line, count->calls.load());
    fflush(stdout);
    if (how == "killed")
        raise(SIGKILL);
    if (how == "endless")
        for (;;)
            fibonacci(10);
    return how == "seven" ? 7 : 0;
}
