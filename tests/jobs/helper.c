/* A helper: it calls `assist` 100 times. */
static volatile int sum;
static void assist(int number) { sum += number; }
int main(void) {
    for (int number = 0; number < 100; number++)
        assist(number);
    return 0;
}
