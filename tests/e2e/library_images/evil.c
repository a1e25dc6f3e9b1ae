/* Leaves traces wherever it runs. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void leave_traces(void)
{
    close(open("/run/evil-ran", O_CREAT | O_WRONLY, 0644));
    close(open("/etc/evil-ran", O_CREAT | O_WRONLY, 0644));
}

#ifdef AS_PROGRAM
int main(void)
{
    return 0;
}
#endif
