#include <unistd.h>
void inner(void) { usleep(10000); }
void plugged(void) { inner(); }
