#include "say.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int journal = -1; /* none, if the host has none */
static char id[256];

void open_journal(void)
{
    struct sockaddr_un log = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};

    journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (journal >= 0 && connect(journal, (struct sockaddr *)&log, sizeof(log)) != 0) {
        close(journal);
        journal = -1;
    }
}

void speak_of(const char *container)
{
    snprintf(id, sizeof(id), "%s", container);
}

void give_up(const char *what)
{
    char line[1024];
    int error = errno;
    int length = snprintf(line, sizeof(line),
                          "<28>npu-dra-libraries: container %s: %s%s%s: its loader does not find "
                          "the Ascend driver's libraries; set LD_LIBRARY_PATH in the container\n",
                          id[0] ? id : "?", what, error ? ": " : "",
                          error ? strerror(error) : "");
    size_t size = (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1;

    if (journal >= 0)
        (void)send(journal, line, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)!write(STDERR_FILENO, line + 4, size - 4);
    _exit(0);
}

void give_up_because(const char *what)
{
    errno = 0;
    give_up(what);
}
