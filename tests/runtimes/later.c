/* A program that calls a function which only newer runtimes have. */
void GOMP_error(const char *message, unsigned long length);

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 10) GOMP_error("", 0);
    return 0;
}
