/* A library whose first function ends the program. */
void inner(void) { *(volatile int *)0 = 1; }
void plugged(void) { inner(); }
