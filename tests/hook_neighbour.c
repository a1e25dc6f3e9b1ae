/* hook_neighbour IMAGE SECRET PROGRAM [ARGUMENT...]: says what a neighbour reaches while PROGRAM runs.
 *
 * The neighbour is a container of the same pod with an IMAGE of its own, which shares the process
 * namespace: root, with the capabilities that runtimes give and no CAP_SYS_PTRACE. It looks at each
 * process of PROGRAM before and after each system call, so that it misses no moment. It traces them
 * for that alone: to open what they have it needs the same rights as any other process.
 *
 * Each line on stderr is a way into a process and what lies there: "fd/6: the host" if SECRET, a
 * file of the host, can be opened from there.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define UP "/../../../../../../../../../../../.."
#define BIT(capability) (1U << (capability))

static struct stat program;
static const char *secret;

static void become_neighbour(const char *image)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2] = {0};

    if (chroot(image) != 0 || chdir("/") != 0)
        perror("image");
    rights[0].effective = rights[0].permitted =
        BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FSETID) | BIT(CAP_FOWNER) |
        BIT(CAP_MKNOD) | BIT(CAP_NET_RAW) | BIT(CAP_SETGID) | BIT(CAP_SETUID) |
        BIT(CAP_SETFCAP) | BIT(CAP_SETPCAP) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SYS_CHROOT) |
        BIT(CAP_KILL) | BIT(CAP_AUDIT_WRITE);
    if (syscall(SYS_capset, &head, rights) != 0)
        perror("rights");
}

static void name(const char *way, const char *path)
{
    char file[512];
    struct stat found;

    if (stat(path, &found) != 0)
        return;
    const char *what = S_ISCHR(found.st_mode)    ? "a device of the host"
                       : S_ISSOCK(found.st_mode) ? "a socket"
                                                 : "the container's";
    if (found.st_dev == program.st_dev && found.st_ino == program.st_ino)
        what = "the hook's file";
    snprintf(file, sizeof(file), "%s" UP "%s", path, secret);
    int opened = open(file, O_RDWR | O_CLOEXEC);
    if (opened >= 0) {
        what = "the host";
        close(opened);
    }
    dprintf(STDERR_FILENO, "%s: %s\n", way, what);
}

static void look_at(pid_t process)
{
    static const char *const ways[] = {"root", "cwd", "exe"};
    char path[64], way[32];

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", process, ways[i]);
        name(ways[i], path);
    }
    int pidfd = (int)syscall(SYS_pidfd_open, process, 0);
    for (int number = 0; number < 16; number++) {
        snprintf(way, sizeof(way), "fd/%d", number);
        snprintf(path, sizeof(path), "/proc/%d/%s", process, way);
        name(way, path);
        int got = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
        if (got < 0)
            continue;
        snprintf(way, sizeof(way), "copy of fd/%d", number);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", got);
        name(way, path);
        close(got);
    }
    close(pidfd);
}

int main(int count, char **arguments)
{
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    int status;

    if (count < 4 || stat(arguments[3], &program) != 0)
        return 2;
    secret = arguments[2];
    pid_t process = fork();
    if (process == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        execv(arguments[3], arguments + 3);
        return 2;
    }
    waitpid(process, &status, 0);
    if (ptrace(PTRACE_SETOPTIONS, process, 0, options) != 0)
        return 2;
    become_neighbour(arguments[1]);
    do {
        int signal = 0;
        if (!WIFSTOPPED(status))
            continue;
        if (status >> 16 == 0 && WSTOPSIG(status) != (SIGTRAP | 0x80))
            signal = WSTOPSIG(status);
        look_at(process);
        ptrace(PTRACE_SYSCALL, process, 0, signal == SIGSTOP ? 0 : signal);
    } while ((process = waitpid(-1, &status, __WALL)) > 0);
    return 0;
}
