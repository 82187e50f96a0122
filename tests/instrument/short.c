/* Functions whose names would be types of C++ if they were taken apart, called before and after a pause. */
#include <unistd.h>

static volatile int sum;

void f(void) { sum++; }
void PKc(void) { f(); }

int main(int count, char **arguments) {
    (void)arguments;
    for (int i = 0; i < 1000; i++) PKc();
    /* Time for names to be known; one argument is more than a test needs. */
    if (count > 1) sleep(1);
    for (int i = 0; i < 1000; i++) PKc();
    return 0;
}
