// A library that the program links: templates, overloads, exceptions, functions that are not exported.
#include "count.h"
#include <mutex>
#include <stdexcept>
#include <string>

static Count *first;

QUIET Count::Count(const char *name, const char *file, int line) : name(name), file(file), line(line)
{
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    next = first;
    first = this;
}

QUIET Count *&all_counts()
{
    return first;
}

namespace shapes {

static int twice(int number) { COUNT("shapes::twice(int)");
    return 2 * number;
}

int area(int width, int height) { COUNT("shapes::area(int, int)");
    return width * height;
}

double area(double radius) { COUNT("shapes::area(double)");
    return 3 * radius * twice(1);
}

template <typename T> T largest(T a, T b);
template <> int largest(int a, int b) { COUNT("int shapes::largest<int>(int, int)");
    return a > b ? a : b;
}

struct Guard {
    QUIET Guard() {}
    ~Guard();
};

Guard::~Guard() { COUNT("shapes::Guard::~Guard()");
}

int risky(int depth) { COUNT("shapes::risky(int)");
    Guard guard;
    if (depth == 0)
        throw std::runtime_error("far enough");
    return risky(depth - 1) + 1;
}

int careful(int depth) { COUNT("shapes::careful(int)");
    try {
        return risky(depth);
    } catch (const std::runtime_error &) {
        return largest(depth, 0);
    }
}

} // namespace shapes

// Runs before the program's main, and before what is preloaded is set up.
struct Early {
    Early();
};
Early::Early() { COUNT("Early::Early()");
}
static Early early;
