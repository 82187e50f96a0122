/* Functions whose names would be types of C++ if they were taken apart. */
static volatile int sum;

void f(void) { sum++; }
void PKc(void) { f(); }

int main(void) {
    for (int i = 0; i < 2000; i++) PKc();
    return 0;
}
